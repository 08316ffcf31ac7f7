"""Guards the promise that errors of jax inside a trace name the user's argument and function, not a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from partax import filter_jit
from trees import Bag, Layer, Tray, array


class Model(eqx.Module):
    layers: list[Any]
    name: str = "m"


def _if(x: Any) -> Any:
    return 1 if x.sum() > 0 else 2


CASES: dict[str, tuple[Any, Callable[[Any], Any], str]] = {
    "argument": (array(3), lambda a: a, "a"),
    "dictionary": ({"b": 1, "c": array(3)}, lambda a: a["c"], "a['c']"),
    "module": (Model([Layer(array(2, 2)), Layer(array(2, 2))]), lambda a: a.layers[1].weight, "a.layers[1].weight"),
    "with keys": ([Tray(array(1), array(2))], lambda a: a[0].bottom, "a[0].bottom"),
    "without keys": ([Bag(array(1), array(2))], lambda a: a[0].items[1], "a[0][<flat index 1>]"),
}


@pytest.mark.parametrize("donate", ["none", "all"])
@pytest.mark.parametrize("case", CASES)
def test_a_concretization_error_names_the_leaf(case: str, donate: Any) -> None:
    value, get, path = CASES[case]

    @filter_jit(donate=donate)
    def step(a: Any, n: int = 1) -> Any:
        return _if(get(a))

    with pytest.raises(jax.errors.ConcretizationTypeError) as caught:
        step(value)
    message = str(caught.value)
    assert f"depends on the value of the argument {path}." in message
    line = step.__wrapped__.__code__.co_firstlineno
    assert f"the function step at {__file__}:{line} for jit" in message
    assert "leaves[" not in message and "args[" not in message


@pytest.mark.parametrize("error", [jax.errors.TracerIntegerConversionError, jax.errors.TracerArrayConversionError])
def test_other_conversions(error: Any) -> None:
    import numpy as np

    convert = range if error is jax.errors.TracerIntegerConversionError else np.asarray

    @filter_jit
    def f(x: Any, *rest: Any, **more: Any) -> Any:
        return convert(more["k"][0])

    with pytest.raises(error, match=r"the argument k\[0\]\."):
        f(array(1), array(1), k=[jnp.asarray(1)])


def test_the_wrapped_module_and_self() -> None:
    class M(eqx.Module):
        weight: jax.Array

        def __call__(self, x: Any) -> Any:
            return _if(self.weight)

        @filter_jit
        def step(self, x: Any) -> Any:
            return _if(self.weight)

    model = M(array(3))
    with pytest.raises(jax.errors.ConcretizationTypeError, match=r"the argument M\.weight\."):
        filter_jit(model)(array(3))
    with pytest.raises(jax.errors.ConcretizationTypeError, match=r"the argument self\.weight\."):
        model.step(array(3))


def test_a_leak_that_is_checked_names_the_argument() -> None:
    leaked: list[Any] = []

    @filter_jit
    def f(state: Any) -> Any:
        leaked.append(state["x"])
        return state["x"] + 1

    with pytest.raises(Exception, match=r"the argument state\['x'\]\."), jax.checking_leaks():
        f({"x": array(3)})
    leaked.clear()


def test_a_leaked_tracer_as_argument_is_named() -> None:
    leaked: list[Any] = []

    @filter_jit
    def f(x: Any, state: Any) -> Any:
        leaked.append(state["x"])
        return x + 1

    f(array(3), {"x": array(3)})
    with pytest.raises(jax.errors.UnexpectedTracerError, match="being traced when the value leaked was f at") as caught:
        f(array(3), {"x": leaked[0]})
    assert any("`state['x']`" in note and "`x`" not in note for note in caught.value.__notes__)


def test_a_program_names_its_arguments() -> None:
    f = filter_jit(lambda model, x: model.weight @ x)
    lowered = f.lower(Layer(array(2, 2)), array(2))
    text = lowered.as_text(debug_info=True)
    assert "model.weight" in text and "leaves[" not in text
    with pytest.raises(TypeError, match=r"`?model\.weight`?"):
        lowered.compile()(Layer(array(3, 3)), array(2))


def test_what_is_traced_keeps_nothing_of_the_user_s_function() -> None:
    import gc
    import weakref

    kept = array(3)

    def make() -> Any:
        held = Layer(array(2, 2))
        return filter_jit(lambda x: x + held.weight.sum()), weakref.ref(held)

    f, held = make()
    f(kept)
    target = f._cache.entries()[0][1]
    del f
    gc.collect()
    assert held() is None and target.__name__ == "<lambda>"


@jax.tree_util.register_pytree_node_class
class ReadOnce:
    """Its flatten function raises once the body has run."""

    is_read = False

    def __init__(self, value: Any) -> None:
        self.value = value

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        if ReadOnce.is_read:
            raise LookupError("it is read again")
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any]) -> ReadOnce:
        return cls(*children)


@pytest.mark.parametrize("error", [TypeError, ValueError, KeyError])
def test_an_error_of_the_body_reaches_the_user_though_its_arguments_cannot_be_read_again(error: Any) -> None:
    ReadOnce.is_read = False

    @filter_jit
    def fails(node: ReadOnce) -> Any:
        ReadOnce.is_read = True
        raise error("of the body")

    with pytest.raises(error, match="of the body"):
        fails(ReadOnce(array(1)))
