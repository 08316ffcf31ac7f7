"""Guards the promise that a wrapper looks like what it wraps, is a pytree, and can be copied, pickled and referred to;
and that wrappers, what they lower to and their caches are one line, whatever they wrap."""

import copy
import functools
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import partax
from conftest import TraceCounter
from partax import filter_closure_convert, filter_grad, filter_jit
from trees import Layer, array, assert_close, assert_same, double, make_model


def plain(x: jax.Array, n: int = 2, *rest: Any, name: str = "s", **options: Any) -> jax.Array:
    """Multiply."""
    return x * n


jitted = filter_jit(plain)


class Module(eqx.Module):
    weight: jax.Array

    @filter_jit
    def method(self, x: jax.Array, /, n: int = 1) -> jax.Array:
        """Scale."""
        return self.weight * x * n


class Plain:
    @filter_jit(donate="none")
    def method(self, x: jax.Array, n: int = 1) -> jax.Array:
        return x * n


def test_signatures() -> None:
    partial, model = functools.partial(plain, n=3), make_model()
    for wrapper, shown in ((jitted, plain), (filter_jit(jitted), plain), (filter_jit(partial), partial)):
        assert inspect.signature(wrapper) == inspect.signature(shown)
    assert inspect.signature(filter_jit(model)) == inspect.signature(model)
    assert list(inspect.signature(Module.method).parameters) == ["self", "x", "n"]
    for bound in (Module(array(2)).method, Plain().method, filter_jit(Plain().method)):
        assert [it.default for it in inspect.signature(bound).parameters.values()] == [inspect.Parameter.empty, 1]


def scaled(self: Any, x: jax.Array, n: int = 1) -> jax.Array:
    return self.factor * x * n


def looked_up(method: Any, x: jax.Array) -> Any:
    """The results of `method` in the ways in which Python looks it up on a class."""

    class Base:
        factor = 2
        on_class = __mul__ = method
        of_class = classmethod(method)

    class Derived(Base):
        def on_class(self, x: Any, n: int = 1) -> Any:
            return super().on_class(x, n) + 1

    base = Base()
    return Base.on_class(base, x), Base.of_class(x), base.on_class(x), base * x, Derived().on_class(x)


def test_it_is_looked_up_on_classes_as_a_function_is() -> None:
    for _ in range(2):
        assert_same(looked_up(filter_jit(scaled), array(2)), looked_up(scaled, array(2)))


def arrays(tree: Any) -> list[jax.Array]:
    return [x for x in jax.tree.leaves(tree) if eqx.is_array(x)]


def test_its_leaves_are_those_of_the_wrapped_callable() -> None:
    model, bound = make_model(), Module(array(2))
    for wrapper, wrapped in ((filter_jit(model, donate="all"), model), (bound.method, bound), (jitted, [])):
        assert all(a is b for a, b in zip(arrays(wrapper), arrays(wrapped), strict=True))
    leaves, treedef = jax.tree.flatten(filter_jit(model))
    again = jax.tree.unflatten(treedef, leaves)
    assert type(again) is type(jitted) and jax.tree.structure(again) == treedef
    assert_same(again(array(3)), filter_jit(model)(array(3)))


def test_as_an_argument_its_arrays_are_traced(traces: TraceCounter) -> None:
    f = filter_jit(lambda fun, x: fun(traces.seen(x)))
    for i in range(3):
        model = make_model(start=i)
        assert_close(f(filter_jit(model), array(3)), model(array(3)))
        np.testing.assert_allclose(f(Module(array(3, start=i)).method, array(3)), array(3, start=i) * array(3))
    assert traces.count == 2


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w))])
def test_copies(how: Callable[[Any], Any]) -> None:
    again = how(filter_jit(plain, donate=("x",), cache_size=7))
    x = array(2)
    assert_same(again(x, 3), array(2) * 3)
    assert x.is_deleted() and again.cache_info().max_size == 7
    assert (again.__name__, again.__doc__) == ("plain", plain.__doc__)
    model = filter_jit(Layer(array(3, 3), array(3), activation=double))  # a function that pickles
    assert_same(how(model)(array(3)), model(array(3)))


def test_a_wrapper_has_the_name_of_what_it_wraps() -> None:
    assert repr(jitted) == repr(filter_jit(filter_grad(plain))) == "<partax.filter_jit of plain>"
    assert repr(filter_jit(make_model())) == "<partax.filter_jit of Model>"
    assert repr(partax.debug.assert_max_traces(plain, max_traces=1)) == "<partax.debug.assert_max_traces of plain>"
    assert repr(partax.debug.assert_max_traces(make_model(), max_traces=1)).endswith("assert_max_traces of Model>")
    assert repr(filter_closure_convert(make_model(), array(3))) == "<partax.filter_closure_convert of Model>"
