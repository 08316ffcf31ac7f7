"""Guards the promise that the doctor names the line at which a program begins to compute in a wider type than asked."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examining import floats, found_by, marked

from partax._doctor.finding import Finding
from partax._doctor.precision import find

DOUBLES = np.linspace(0.0, 1.0, 8)
half = functools.partial(floats, dtype="bfloat16")
SINGLES = np.linspace(0.0, 1.0, 8, dtype=np.float32)


def found(function: Callable[..., Any], *args: Any, x64: bool = True) -> list[Finding]:
    with jax.enable_x64(x64):
        return found_by(find)(function, *args)


@pytest.mark.parametrize(
    ("widen", "because"),
    [
        (lambda x: x * DOUBLES, "an array"),
        (lambda x: x + np.float64(2), "a scalar"),
        (lambda x: x - jnp.linspace(0, 1, 8), "an array"),
        (lambda x: x + jax.random.normal(jax.random.key(0), (8,)), "an array"),
        (lambda x: jnp.where(x > 0, x, DOUBLES), "an array"),
        (lambda x: x @ DOUBLES, "an array"),
    ],
)
def test_what_makes_float64_of_float32_is_named(widen: Any, because: str) -> None:
    def program(x: Any) -> Any:
        y = jnp.sin(x)
        return jnp.cos(widen(y)) * 2

    (finding,) = found(program, floats(4, 8))
    assert (finding.kind, finding.file) == ("precision", __file__)
    assert "widen" not in finding.source and finding.source.startswith("(lambda x")
    assert "float32[4,8] becomes float64[4" in finding.message
    assert f"combined with {because} of type float64:" in finding.message


def test_the_line_and_the_figures() -> None:
    """https://github.com/jax-ml/jax/issues/1830."""
    sigma = np.float64(2.0)

    def energy(xs: Any) -> Any:
        ys = jnp.sin(xs)
        zs = ys / sigma**2  # here
        return jnp.exp(zs)

    (finding,) = found(energy, floats(1000))
    assert finding.line == marked(energy)
    assert finding.severity == "high"
    # A sine in float32; a conversion, a division and an exponential in float64.
    assert finding.figures == {"operations": 3, "all_operations": 4, "share": 0.75, "places": 1}
    assert found(energy, floats(1000), x64=False) == []
    assert found(energy, floats(1000, dtype="float64")) == []
    # What was float32 and is combined with float64 arguments was meant so.
    assert found(lambda x, y: x * y, floats(8), floats(8, dtype="float64")) == []


def test_numbers_of_python_keep_the_type() -> None:
    def program(x: Any) -> Any:
        return jnp.where(x > 0.5, x * 2.0 + 1, x / 3) ** 2 + jnp.arange(8, dtype=x.dtype)

    assert found(program, floats(8)) == []
    assert found(program, half(8)) == []


@pytest.mark.parametrize(("others", "is_found"), [(26, True), (27, True), (28, False)])
def test_a_tenth_of_the_operations_is_the_least(others: int, is_found: bool) -> None:
    def program(x: Any) -> Any:
        for _ in range(others):
            x = jnp.sin(x)
        # A conversion, a product and a sine: 3 of 30, with 27 others.
        return jnp.sin(x * DOUBLES)

    assert bool(found(program, floats(8))) is is_found


def test_single_numbers_are_not_counted() -> None:
    def program(x: Any) -> Any:
        return x, x.sum() * np.float64(2.0), jnp.float64(3.0) * x[0]

    assert found(program, floats(8)) == []


def test_a_named_type_is_reported_where_half_of_the_program_has_it() -> None:
    def program(x: Any) -> Any:
        y = x.astype(float)  # here
        return jnp.sin(y) * jnp.cos(y)

    (finding,) = found(program, floats(8))
    assert finding.line == marked(program)
    assert "as the type is named here" in finding.message
    assert "`jnp.float32`" in finding.advice

    def accurate_sum(x: Any) -> Any:
        y = jnp.tanh(jnp.sin(x))
        return jnp.sum(y.astype(jnp.float64))

    assert found(accurate_sum, floats(8)) == []


def test_complex_numbers_are_as_wide_as_their_parts() -> None:
    phases = np.exp(1j * DOUBLES)

    def program(x: Any) -> Any:
        return jnp.sin(x * phases)  # here

    (finding,) = found(program, floats(8, dtype="complex64"))
    assert finding.line == marked(program)
    assert "complex64[8] becomes complex128[8]" in finding.message


def test_float32_of_half_precision() -> None:
    def program(x: Any, w: Any) -> Any:
        y = x * SINGLES  # here
        return jnp.tanh(y @ w)

    (finding,) = found(program, half(4, 8), half(8, 8), x64=False)
    assert finding.line == marked(program)
    # All: x and the array in one type and shape, their product, that of matrices, and the tangent.
    assert finding.figures["share"] == 1.0
    assert "bfloat16[4,8] becomes float32[4,8] as it is combined with an array of type float32:" in finding.message
    assert found(lambda x, w: program(x, w), half(4, 8), floats(8, 8), x64=False) == []


@pytest.mark.parametrize(("before", "is_found"), [(2, True), (3, False)])
def test_half_of_a_program_in_half_precision_is_the_least(before: int, is_found: bool) -> None:
    def program(x: Any) -> Any:
        for _ in range(before):
            x = jnp.sin(x)
        return x * SINGLES  # a conversion and a product

    assert bool(found(program, half(8), x64=False)) is is_found


def test_a_loss_a_norm_and_a_softmax_in_float32_are_meant_so() -> None:
    def normalised(x: Any) -> Any:
        wide = x.astype(jnp.float32)
        mean = wide.mean(-1, keepdims=True)
        return ((wide - mean) * jax.lax.rsqrt(wide.var(-1, keepdims=True) + 1e-5)).astype(x.dtype)

    def loss(x: Any, w: Any) -> Any:
        scores = jax.nn.softmax((normalised(x) @ w).astype(jnp.float32))
        return -jnp.log(scores).mean() + jnp.square(w.astype(jnp.float32)).sum()

    assert found(jax.grad(loss, argnums=1), half(4, 8), half(8, 8), x64=False) == []

    def all_wide(x: Any, w: Any) -> Any:
        return jnp.tanh(x.astype(jnp.float32) @ w.astype(jnp.float32)) * SINGLES

    assert found(all_wide, half(4, 8), half(8, 8), x64=False) == []


def rotated(x: Any) -> Any:
    """A rotation by position, by angles that are made in float32."""
    angles = jnp.arange(4.0)[:, None] / 10000 ** (jnp.arange(0, 8, 2) / 8)
    first, second = x[..., ::2], x[..., 1::2]
    turned = [first * jnp.cos(angles) - second * jnp.sin(angles), second * jnp.cos(angles) + first * jnp.sin(angles)]
    return jnp.concatenate(turned, -1)


def rescaled(x: Any) -> Any:
    return jnp.exp(jnp.tanh(x * SINGLES)) + SINGLES


def in_a_scan(widen: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: jax.lax.scan(lambda carry, _: (carry, widen(carry)), x, None, length=3)[1]


@pytest.mark.parametrize("widen", [rotated, rescaled, jax.jit(rescaled)])
def test_what_is_cast_back_before_it_is_used_is_meant_so(widen: Any) -> None:
    def cast_back(x: Any, w: Any) -> Any:
        return widen(x).astype(x.dtype) @ w

    def used(x: Any, w: Any) -> Any:
        return (widen(x) @ w).astype(x.dtype)

    x, w = half(4, 8), half(8, 8)
    assert found(cast_back, x, w, x64=False) == []
    assert found(jax.grad(lambda x, w: cast_back(x, w).sum()), x, w, x64=False) == []
    assert found(used, x, w, x64=False)
    assert found(widen, x, x64=False)
    assert found(in_a_scan(widen), x, x64=False)
    assert found(in_a_scan(lambda x: widen(x).astype(x.dtype)), x, x64=False) == []


def test_what_is_inside_of_a_loop_is_read() -> None:
    def program(x: Any) -> Any:
        def step(carry: Any, y: Any) -> Any:
            return carry, jnp.sin(carry * DOUBLES) + y  # here

        return jax.lax.scan(step, x, None if x is None else jnp.zeros((3, 8)))[1]

    (finding,) = found(program, floats(8))
    assert finding.line == marked(program)
