"""Guards the promise that Python numbers and weak types in a carry settle as in Python's own loop, and nothing else."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from conftest import TraceCounter
from trees import Layer, array

XS = jnp.arange(3.0)


def type_of(value: Any) -> str:
    return str(jax.typeof(value))


# What is carried, the step, and the type that it settles to; `~` is jax's sign for a weak type.
SETTLES: dict[str, tuple[Any, Any, str]] = {
    "a number made an array": (0.0, lambda c, x: c + x, "float32[]"),
    "an integer made a float": (0, lambda c, x: c + x, "float32[]"),
    "a number that changes": (0, lambda c, x: c + 1, "~int32[]"),
    "an integer that becomes a float": (1, lambda c, x: c * 0.5, "~float32[]"),
    "an integer that becomes complex": (1, lambda c, x: c * 1j, "~complex64[]"),
    "a bool that becomes an integer": (True, lambda c, x: c + 1, "~int32[]"),
    "a bool that changes": (True, lambda c, x: not c if isinstance(c, bool) else ~c, "bool[]"),
    "a weak array (jax #9046)": (jnp.asarray(0), lambda c, x: c + x, "float32[]"),
    "a weak array of the right dtype": (jnp.asarray(0.0), lambda c, x: c + x, "float32[]"),
    "a weak array that stays weak": (jnp.asarray(1), lambda c, x: c * 2, "~int32[]"),
    "a weak integer and a weak float": (jnp.asarray(1), lambda c, x: c * 0.5, "~float32[]"),
    "a weak float and bfloat16": (0.0, lambda c, x: c + x.astype(jnp.bfloat16), "bfloat16[]"),
    "a numpy scalar": (np.float32(0), lambda c, x: c + x, "float32[]"),
    "a numpy double": (np.float64(0), lambda c, x: c + x, "float32[]"),
    "an array set to a number": (jnp.float32(3), lambda c, x: 0, "float32[]"),
    "an array set to a weak one": (jnp.float32(3), lambda c, x: jnp.asarray(1), "float32[]"),
    "numbers that depend on one another": (
        (0, 0, 0),
        lambda c, x: (c[0] + x, c[1] + c[0], c[2] + c[1]),
        "float32[] float32[] float32[]",
    ),
}


@pytest.mark.parametrize("name", SETTLES)
def test_a_carry_settles_to_the_type_that_a_python_loop_ends_with(name: str) -> None:
    init, f, expected = SETTLES[name]
    found, _ = partax.filter_scan(lambda c, x: (f(c, x), None), init, XS)
    looped = init
    for x in XS:
        looped = f(looped, x)
    assert " ".join(map(type_of, jax.tree.leaves(found))) == expected
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(looped), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_number_that_stays_stays_static() -> None:
    seen: list[Any] = []

    def f(c: Any, x: Any) -> Any:
        seen.append(c["eps"])
        return {**c, "a": c["a"] + c["eps"] * x}, c["eps"]

    last, eps = partax.filter_scan(f, {"a": jnp.float32(0), "eps": 0.5}, XS)
    assert type(eps) is float and type(last["eps"]) is float and seen == [0.5]


def test_each_attempt_is_one_more_trace_and_no_attempt_is_made_in_vain(traces: TraceCounter) -> None:
    def f(c: Any, x: Any) -> Any:
        traces.tick()
        return c + x, None

    for init, count in ((jnp.float32(0), 1), (np.float32(0), 1), (0.0, 2), (jnp.asarray(0), 2)):
        traces.count = 0
        partax.filter_scan(f, init, XS)
        assert traces.count == count, init


def test_settled_numbers_in_modules_and_loops() -> None:
    def body(layer: Layer) -> Layer:
        return Layer(layer.weight, layer.bias, layer.rate / 2)

    found = partax.filter_fori_loop(0, 3, lambda i, c: body(c), Layer(array(1), rate=0.5))
    assert type_of(found.rate) == "~float32[]" and found.rate == 0.0625
    assert partax.filter_while_loop(lambda i: i < 7, lambda i: i * 2, 1) == 8
    n, name = partax.filter_while_loop(lambda c: c[0] < 7, lambda c: (c[0] * 2, c[1]), (1, "n"))
    assert n == 8 and name == "n"


def test_an_error_in_a_step_says_which_number_it_made_an_array() -> None:
    with pytest.raises(jax.errors.TracerBoolConversionError) as raised:
        partax.filter_scan(lambda c, x: ({"n": c["n"] + 1 if c["n"] < 2 else 0}, None), {"n": 0}, length=3)
    assert "c['n']" in str(raised.value)
    note = "partax: `carry['n']`: a Python number that the step changes, and so an array in it"
    assert note in raised.value.__notes__
