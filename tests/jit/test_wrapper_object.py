"""A wrapper looks like what it wraps, is a pytree, and can be copied, pickled and referred to."""

from __future__ import annotations

import copy
import doctest
import functools
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import TraceCounter
from partax import filter_jit
from trees import Layer, array, assert_close, assert_same, double, make_model


def plain(x: jax.Array, n: int = 2, *rest: Any, name: str = "s", **options: Any) -> jax.Array:
    """Multiply."""
    return x * n


jitted = filter_jit(plain)


@filter_jit
def decorated(x: jax.Array) -> jax.Array:
    """Add one.

    >>> 2 + 2
    4
    """
    return x + 1


class Module(eqx.Module):
    weight: jax.Array

    @filter_jit
    def method(self, x: jax.Array, /, n: int = 1) -> jax.Array:
        """Scale."""
        return self.weight * x * n


class Plain:
    @filter_jit(donate="none")
    def method(self, x: jax.Array, n: int = 1) -> jax.Array:
        """Scale too.

        >>> 4 + 4
        8
        """
        return x * n


def test_signatures() -> None:
    assert inspect.signature(jitted) == inspect.signature(plain)
    assert inspect.signature(filter_jit(jitted)) == inspect.signature(plain)
    assert list(inspect.signature(Module.method).parameters) == ["self", "x", "n"]
    expected = ["x", "n"]
    for bound in (Module(array(2)).method, Plain().method, filter_jit(Plain().method)):
        assert list(inspect.signature(bound).parameters) == expected
        assert inspect.signature(bound).parameters["n"].default == 1
    model = make_model()
    assert inspect.signature(filter_jit(model)) == inspect.signature(model)
    partial = functools.partial(plain, n=3)
    assert inspect.signature(filter_jit(partial)) == inspect.signature(partial)


def test_doctests_are_found() -> None:
    tests = doctest.DocTestFinder().find(inspect.getmodule(plain))
    found = {test.name.split(".", 1)[-1]: test.examples[0].want for test in tests if test.examples}
    assert found.items() >= {"decorated": "4\n", "Plain.method": "8\n"}.items()


def test_it_is_callable_and_a_class_gives_the_wrapper_itself() -> None:
    assert callable(jitted) and isinstance(jitted, Callable)  # type: ignore[arg-type]
    assert Plain.method is Plain.__dict__["method"] is Plain.method
    assert Module.method is Module.__dict__["method"]
    assert Plain().method is not Plain.method
    assert_same(jitted.__get__(None, Plain)(array(2)), array(2) * 2)
    assert_same(Plain.method(Plain(), array(2), 3), array(2) * 3)


def scaled(self: Any, x: jax.Array, n: int = 1) -> jax.Array:
    return self.factor * x * n


def with_method(method: Any) -> Any:
    """Classes that find `method` in every way in which Python does."""

    class Base:
        factor = 2
        on_class = method
        __mul__ = method
        of_class = classmethod(method)

        @property
        def from_property(self) -> Any:
            return method.__get__(self)

    class Meta(type):
        factor = 3
        on_class = method

    class Derived(Base):
        def on_class(self, x: Any, n: int = 1) -> Any:
            return super().on_class(x, n) + 1

    shadowed = Base()
    shadowed.on_class = lambda x: x + 100  # type: ignore[method-assign]
    x = array(2, start=1)
    return [
        Base().on_class(x),
        Base.on_class(Base(), x),
        Base() * x,
        Base.of_class(x),
        Base().from_property(x),
        Meta("Made", (), {}).on_class(x),
        Derived().on_class(x),
        shadowed.on_class(x),
    ]


def test_it_is_found_on_classes_as_a_function_is() -> None:
    for _ in range(2):
        assert_same(with_method(filter_jit(scaled)), with_method(scaled))


def arrays(tree: Any) -> list[jax.Array]:
    return [x for x in jax.tree.leaves(tree) if eqx.is_array(x)]


def test_its_leaves_are_those_of_the_wrapped_callable() -> None:
    model = make_model()
    for wrapper in (filter_jit(model), filter_jit(model, donate="all")):
        assert len(arrays(wrapper)) == 4
        assert all(a is b for a, b in zip(arrays(wrapper), arrays(model), strict=True))
    bound = Module(array(2))
    assert [a is bound.weight for a in arrays(bound.method)] == [True]
    assert arrays(jitted) == []
    leaves, treedef = jax.tree.flatten(filter_jit(model))
    again = jax.tree.unflatten(treedef, leaves)
    assert type(again) is type(jitted) and jax.tree.structure(again) == treedef
    assert_same(again(array(3)), filter_jit(model)(array(3)))


class Outer(eqx.Module):
    inner: Callable[..., Any]
    scale: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.sum(self.inner(x) * self.scale)


def test_as_an_argument_its_arrays_are_traced(traces: TraceCounter) -> None:
    @filter_jit
    def f(fun: Any, x: jax.Array) -> jax.Array:
        traces.tick()
        return fun(x)

    for i in range(3):
        model = make_model(start=i)
        assert_close(f(filter_jit(model), array(3)), model(array(3)))
        np.testing.assert_allclose(f(Module(array(3, start=i)).method, array(3)), array(3, start=i) * array(3))
    assert traces.count == 2


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w))])
def test_copies_of_function_and_module_wrappers(how: Callable[[Any], Any]) -> None:
    again = how(jitted)
    assert_same(again(array(2), 3), array(2) * 3)
    assert (again.__name__, again.__doc__) == ("plain", plain.__doc__)
    model = Layer(array(3, 3), array(3), activation=double)  # a function that pickles
    assert_same(how(filter_jit(model))(array(3)), filter_jit(model)(array(3)))
    outer = Outer(filter_jit(model), array(3))
    assert_same(how(outer)(array(3)), outer(array(3)))


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w))])
def test_copies_keep_the_options(how: Callable[[Any], Any]) -> None:
    again = how(filter_jit(plain, donate=("x",), cache_size=7))
    x = array(4)
    assert_same(again(x), array(4) * 2)
    assert x.is_deleted() and again.cache_info().max_size == 7


def test_one_that_is_bound_already_is_called_without_the_instance_that_it_is_found_on() -> None:
    class Holder:
        factor = 5

    bound = filter_jit(scaled).__get__(Holder())
    finder = type("Finder", (), {"factor": 7, "bound": bound})()
    assert finder.bound is bound
    assert_same(finder.bound(array(2)), array(2) * 5)
