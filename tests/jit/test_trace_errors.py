"""Guards the promise that errors of jax inside a trace name the user's argument and function, not a number, and that an
error which a program raises while it runs comes as Equinox has it, and at the call."""

import logging
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from partax import filter_jit
from trees import Bag, Layer, Model, Tray, array

CASES: dict[str, tuple[Any, Callable[[Any], Any], str]] = {
    "argument": (array(3), lambda a: a, "a"),
    "dictionary": ({"b": 1, "c": array(3)}, lambda a: a["c"], "a['c']"),
    "module": (Model([Layer(array(2, 2)), Layer(array(2, 2))]), lambda a: a.layers[1].weight, "a.layers[1].weight"),
    "with keys": ([Tray(array(1), array(2))], lambda a: a[0].bottom, "a[0].bottom"),
    "without keys": ([Bag(array(1), array(2))], lambda a: a[0].items[1], "a[0][<flat index 1>]"),
}


@pytest.mark.parametrize(("value", "get", "path"), CASES.values(), ids=CASES)
def test_a_concretization_error_names_the_leaf(value: Any, get: Callable[[Any], Any], path: str) -> None:
    @filter_jit(donate="all")
    def step(a: Any, n: int = 1) -> Any:
        return bool(get(a).sum() > 0)

    with pytest.raises(jax.errors.ConcretizationTypeError) as caught:
        step(value)
    message = str(caught.value)
    assert f"depends on the value of the argument {path}." in message
    line = step.__wrapped__.__code__.co_firstlineno
    assert f"the function step at {__file__}:{line} for jit" in message
    assert "leaves[" not in message and "args[" not in message


class M(eqx.Module):
    weight: jax.Array

    def __call__(self, x: Any) -> Any:
        return bool(self.weight.sum())


def test_the_wrapped_module_and_self() -> None:
    for jitted, args, name in ((filter_jit(M(array(3))), (), "M"), (filter_jit(M.__call__), (M(array(3)),), "self")):
        with pytest.raises(jax.errors.ConcretizationTypeError, match=rf"the argument {name}\.weight\."):
            jitted(*args, array(3))


leaked: list[Any] = []


@filter_jit
def leaks(x: Any, state: Any) -> Any:
    leaked.append(state["x"])
    return x + state["x"]


def test_a_leaked_tracer_as_argument_is_named() -> None:
    leaks.clear_cache()
    leaks(array(3), {"x": array(3)})
    with pytest.raises(jax.errors.UnexpectedTracerError, match="traced when the value leaked was leaks at") as caught:
        leaks(array(3), {"x": leaked.pop()})
    assert any("`state['x']`" in note and "`x`" not in note for note in caught.value.__notes__)


def test_a_program_names_its_arguments() -> None:
    f = filter_jit(lambda model, x: model.weight @ x)
    lowered = f.lower(Layer(array(2, 2)), array(2))
    text = lowered.as_text(debug_info=True)
    assert "model.weight" in text and "leaves[" not in text
    with pytest.raises(TypeError, match=r"`?model\.weight`?"):
        lowered.compile()(Layer(array(3, 3)), array(2))


def checked(x: jax.Array, message: str = "x must be positive") -> jax.Array:
    return jnp.sin(eqx.error_if(x, x <= 0, message))


inner = jax.jit(checked, static_argnums=1)  # traced once, in whatever program it is first
FUNCTIONS: dict[str, Any] = {
    "an array": checked,
    "beside what comes back": lambda x: (x, checked(x)),
    "in a program of its own": lambda x: inner(x) + 1,
    "in a loop": lambda x: jax.lax.fori_loop(0, 2, lambda _, y: jnp.abs(checked(y)), x),
    "in another wrapper": lambda x: filter_jit(checked)(x),
}


def words(error: BaseException) -> list[str]:
    """The lines of a message that are no places in files, nor the code there."""
    return [line for line in str(error).splitlines() if not line.startswith("  ")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_error_is_raised_at_the_call(name: str, caplog: pytest.LogCaptureFixture) -> None:
    jitted, equinox_jitted = filter_jit(FUNCTIONS[name], donate="all"), eqx.filter_jit(FUNCTIONS[name])
    jitted.clear_cache()
    for sign in (1, -1, -1, 1, -1):
        x = sign * jnp.ones(())
        if sign > 0:
            jax.tree.map(np.testing.assert_array_equal, jitted(jnp.copy(x)), equinox_jitted(x))
            continue
        with pytest.raises(eqx.EquinoxRuntimeError) as theirs:
            equinox_jitted(x)
        caplog.clear()
        with pytest.raises(eqx.EquinoxRuntimeError, match=r"x must be positive|first") as ours:
            jitted(jnp.copy(x))  # the result is not asked for
        assert words(ours.value) == words(theirs.value)
        assert not [record for record in caplog.records if "callback" in record.name]
    assert jitted.cache_info().traces == 1


def test_other_errors_come_as_jax_gives_them(caplog: pytest.LogCaptureFixture) -> None:
    def fails(x: Any) -> Any:
        raise ValueError("of the user's")

    kinds: list[type] = []
    for jit in (jax.jit, filter_jit):
        jitted = jit(lambda x: jax.pure_callback(fails, jax.ShapeDtypeStruct((), x.dtype), x))
        caplog.clear()
        with caplog.at_level(logging.ERROR), pytest.raises(Exception, match="of the user's") as error:
            jitted(jnp.ones(())).block_until_ready()
        kinds.append(type(error.value))
        assert any("callback failed" in record.getMessage() for record in caplog.records)
    assert kinds[0] is kinds[1]
