"""Guards the promise that the doctor names the line at which a program begins to compute in a wider type than asked."""

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
SINGLES = np.linspace(0.0, 1.0, 8, dtype=np.float32)
rescaled = lambda x: jnp.exp(jnp.tanh(x * SINGLES)) + SINGLES
half = functools.partial(floats, dtype="bfloat16")
double = functools.partial(floats, dtype="float64")


def found(function: Callable[..., Any], *args: Any, x64: bool = True) -> list[Finding]:
    with jax.enable_x64(x64):
        return found_by(find)(function, *args)


def repeated(operation: Any, times: int, x: Any) -> Any:
    for _ in range(times):
        x = operation(x)
    return x


def energy(xs: Any) -> Any:
    """https://github.com/jax-ml/jax/issues/1830."""
    ys = jnp.sin(xs)
    zs = ys / np.float64(2.0) ** 2  # here
    return jnp.exp(zs)


def named(x: Any) -> Any:
    y = x.astype(float)  # here
    return jnp.sin(y) * jnp.cos(y)


def of_half(x: Any, w: Any) -> Any:
    y = x * SINGLES  # here
    return jnp.tanh(y @ w)


def in_a_loop(x: Any) -> Any:
    def step(carry: Any, y: Any) -> Any:
        return carry, jnp.sin(carry * DOUBLES) + y  # here

    return jax.lax.scan(step, x, jnp.zeros((3, 8)))[1]


in_a_scan = lambda widen: lambda x: jax.lax.scan(lambda carry, _: (carry, widen(carry)), x, None, length=3)[1]
mixed = lambda widen: lambda x: jnp.cos(widen(jnp.sin(x))) * 2
AN_ARRAY, OF_DOUBLE = "combined with an array of type float64:", "combined with a scalar of type float64:"
# What is found with 64 bits, and words of the message.
FOUND: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "an array of NumPy": (mixed(lambda x: x * DOUBLES), (floats(4, 8),), AN_ARRAY),
    "a scalar of NumPy": (mixed(lambda x: x + np.float64(2)), (floats(4, 8),), OF_DOUBLE),
    "an array of jax": (mixed(lambda x: x - jnp.linspace(0, 1, 8)), (floats(4, 8),), AN_ARRAY),
    "a choice": (mixed(lambda x: jnp.where(x > 0, x, DOUBLES)), (floats(4, 8),), AN_ARRAY),
    "a product of matrices": (mixed(lambda x: x @ DOUBLES), (floats(4, 8),), AN_ARRAY),
    "a line": (energy, (floats(1000),), OF_DOUBLE),
    "a type that is named": (named, (floats(8),), "as the type is named here"),
    "complex numbers": (lambda x: jnp.sin(x * np.exp(1j * DOUBLES)), (floats(8, dtype="complex64"),),
        "complex64[8] becomes complex128[8]"),
    "a loop": (in_a_loop, (floats(8),), AN_ARRAY),
    # A conversion, a product and a sine: 3 of 30 operations, with 27 others.
    "a tenth": (lambda x: jnp.sin(repeated(jnp.sin, 27, x) * DOUBLES), (floats(8),), "(10%)"),
}  # fmt: skip
SILENT: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "numbers of Python": (lambda x: jnp.where(x > 0.5, x * 2.0 + 1, x / 3) ** 2 + jnp.arange(8, dtype=x.dtype),
        (floats(8),)),
    "less than a tenth": (lambda x: jnp.sin(repeated(jnp.sin, 28, x) * DOUBLES), (floats(8),)),
    "single numbers": (lambda x: (x, x.sum() * np.float64(2.0), jnp.float64(3.0) * x[0]), (floats(8),)),
    "an accurate sum": (lambda x: jnp.sum(jnp.tanh(jnp.sin(x)).astype(jnp.float64)), (floats(8),)),
    "arguments in double": (energy, (double(1000),)),
    "arguments of both types": (lambda x, y: x * y, (floats(8), double(8))),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_makes_float64_of_float32_is_named(name: str) -> None:
    function, args, text = FOUND[name]
    (finding,) = found(function, *args)
    assert (finding.kind, finding.file) == ("precision", __file__)
    assert text in finding.message and finding.advice
    if function in (energy, named, in_a_loop):
        assert finding.line == marked(function)
    if function is energy:  # a sine in float32; a conversion, a division and an exponential in float64
        assert finding.severity == "high"
        assert finding.figures == {"operations": 3, "all_operations": 4, "share": 0.75, "places": 1}
    if args[0].shape == (4, 8):
        assert "float32[4,8] becomes float64[4" in finding.message and finding.source.startswith('"')
    assert found(function, *args, x64=False) == []


@pytest.mark.parametrize("name", SILENT)
def test_what_is_as_wide_as_asked_or_little_is_not(name: str) -> None:
    function, args = SILENT[name]
    assert found(function, *args) == []


def test_float32_of_half_precision() -> None:
    (finding,) = found(of_half, half(4, 8), half(8, 8), x64=False)
    assert finding.line == marked(of_half)
    # All: x and the array in one type and shape, their product, that of matrices, and the tangent.
    assert finding.figures["share"] == 1.0
    assert "bfloat16[4,8] becomes float32[4,8] as it is combined with an array of type float32:" in finding.message
    assert found(lambda x, w: of_half(x, w), half(4, 8), floats(8, 8), x64=False) == []
    # A conversion and a product: half of a program is the least.
    assert found(lambda x: repeated(jnp.sin, 2, x) * SINGLES, half(8), x64=False) != []
    assert found(lambda x: repeated(jnp.sin, 3, x) * SINGLES, half(8), x64=False) == []


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


@pytest.mark.parametrize("widen", [rotated, rescaled, jax.jit(rescaled)])
def test_what_is_cast_back_before_it_is_used_is_meant_so(widen: Any) -> None:
    def cast_back(x: Any, w: Any) -> Any:
        return widen(x).astype(x.dtype) @ w

    def used(x: Any, w: Any) -> Any:
        return (widen(x) @ w).astype(x.dtype)

    x, w = half(4, 8), half(8, 8)
    assert found(cast_back, x, w, x64=False) == []
    assert found(jax.grad(lambda x, w: cast_back(x, w).sum()), x, w, x64=False) == []
    assert found(in_a_scan(lambda x: widen(x).astype(x.dtype)), x, x64=False) == []
    assert found(used, x, w, x64=False) and found(widen, x, x64=False) and found(in_a_scan(widen), x, x64=False)
