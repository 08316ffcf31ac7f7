"""Guards that an error which a program raises while it runs comes as Equinox has it, and at the call."""

from __future__ import annotations

import logging
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from partax import filter_jit
from partax._jit import runtime_errors


def checked(x: jax.Array, message: str = "x must be positive") -> jax.Array:
    return jnp.sin(eqx.error_if(x, x <= 0, message))


inner = jax.jit(checked, static_argnums=1)  # traced once, in whatever program it is first


FUNCTIONS: dict[str, Any] = {
    "an array": checked,
    "a tree": lambda x: {"a": checked(x), "b": 1},
    "beside what comes back": lambda x: (x, checked(x)),
    "after it": lambda x: checked(checked(x, "first"), "second"),
    "in a program of its own": lambda x: inner(x) + 1,
    "in it again": lambda x: inner(x) + 2,
    "in a loop": lambda x: jax.lax.fori_loop(0, 2, lambda _, y: jnp.abs(checked(y)), x),
    "under vmap": lambda x: jax.vmap(checked)(jnp.stack([x, x])),
    "in a gradient": jax.grad(lambda x: checked(x)),
    "in another wrapper": lambda x: filter_jit(checked)(x),
}


def words(error: BaseException) -> list[str]:
    """The lines of a message that are no places in files, nor the code there."""
    return [line for line in str(error).splitlines() if not line.startswith("  ")]


@pytest.mark.parametrize("donate", ["none", "all"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_error_is_raised_at_the_call(name: str, donate: Any, caplog: pytest.LogCaptureFixture) -> None:
    jitted, equinox_jitted = filter_jit(FUNCTIONS[name], donate=donate), eqx.filter_jit(FUNCTIONS[name])
    jitted.clear_cache()
    for sign in (1, -1, -1, 1, -1):
        x = sign * jnp.ones(())
        if sign > 0:
            expected = equinox_jitted(x)
            jax.tree.map(np.testing.assert_array_equal, jitted(jnp.copy(x)), expected)
            continue
        with pytest.raises(eqx.EquinoxRuntimeError) as theirs:
            equinox_jitted(x)
        caplog.clear()
        with pytest.raises(eqx.EquinoxRuntimeError) as ours:
            jitted(jnp.copy(x))  # the result is not asked for
        assert words(ours.value) == words(theirs.value)
        assert "x must be positive" in str(ours.value) or "first" in str(ours.value)
        assert not [record for record in caplog.records if "callback" in record.name]
    assert jitted.cache_info().traces == 1


def test_the_first_call_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    jitted = filter_jit(lambda x: checked(x, "from the start"))
    logger = logging.getLogger("jax._src.callback")
    filters, logger.filters = logger.filters, []  # as in a process where nothing was traced yet
    runtime_errors._silence.cache_clear()
    try:
        for _ in range(2):
            with pytest.raises(eqx.EquinoxRuntimeError, match="from the start") as error:
                jitted(jnp.zeros(2))
    finally:
        logger.filters = filters
    assert "in checked" in str(error.value)
    assert not caplog.text
    assert jitted(jnp.ones(2)).shape == (2,)


def test_without_equinoxs_words_the_message_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("equinox._jit._on_error_msg")
    with pytest.raises(eqx.EquinoxRuntimeError, match=r"^in ours\n") as error:
        filter_jit(lambda x: checked(x, "in ours"))(jnp.zeros(2))
    assert "in checked" in str(error.value) and "EQX_ON_ERROR" in str(error.value)


def test_each_shape_of_a_key() -> None:
    jitted = filter_jit(lambda x: checked(x) if x.ndim else x + 1)
    assert float(jitted(jnp.zeros(()))) == 1
    with pytest.raises(eqx.EquinoxRuntimeError):
        jitted(jnp.zeros(1))


def test_other_errors_come_as_jax_gives_them(caplog: pytest.LogCaptureFixture) -> None:
    def fails(x: Any) -> Any:
        raise ValueError("of the user's")

    def function(x: jax.Array) -> jax.Array:
        return jax.pure_callback(fails, jax.ShapeDtypeStruct((), x.dtype), x)

    kinds: list[type] = []
    for jit in (jax.jit, filter_jit):
        caplog.clear()
        with caplog.at_level(logging.ERROR), pytest.raises(Exception, match="of the user's") as error:
            jit(function)(jnp.ones(())).block_until_ready()
        kinds.append(type(error.value))
        assert any("callback failed" in record.getMessage() for record in caplog.records)
    assert kinds[0] is kinds[1]
