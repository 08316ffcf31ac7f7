"""An output that is an input is the same array object: no copy, no dispatch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partax import filter_jit
from trees import Pair, array, assert_same


def test_only_the_first_appearance_is_forwarded() -> None:
    f = filter_jit(lambda x: (x, {"again": x}, [x + 1, x]))
    for _ in range(3):
        x = array(3)
        first, second, (third, fourth) = f(x)
        assert first is x and second["again"] is not x and fourth is not x
        assert second["again"] is not fourth
        assert_same((second["again"], third, fourth), (x, x + 1, x))


def test_forwarded_and_static_outputs_only() -> None:
    f = filter_jit(lambda x, n: Pair({"x": [x, n, None]}, x.shape))
    for size in (2, 3, 2):
        x = array(size)
        out = f(x, "n")
        assert out.left["x"][0] is x
        assert (out.left["x"][1:], out.right) == (["n", None], (size,))


def test_keys_and_committed_arrays() -> None:
    key, committed = jax.random.key(3), jax.device_put(array(3), jax.devices()[0])
    out = filter_jit(lambda *xs: xs)(key, committed)
    assert out[0] is key and out[1] is committed and out[1].committed


# --- inputs that are not jax arrays


@pytest.mark.parametrize(
    "x",
    [
        np.arange(3, dtype=np.float32),
        np.arange(3.0),
        np.arange(3),
        np.float64(1.5),
        np.int8(3),
        np.bool_(True),
        np.ones((2, 0)),
        np.arange(6.0).reshape(2, 3).T,
        np.ones(2, jnp.bfloat16),
        np.arange(4, dtype=">f4"),
    ],
    ids=repr,
)
def test_numpy_inputs_come_out_as_from_jax_jit(x: Any) -> None:
    f = filter_jit(lambda x, y: {"x": x, "y": y + 1})
    try:
        expected = jax.jit(lambda x: x)(x)
    except TypeError as error:  # byte orders that jax refuses
        with pytest.raises(type(error)):
            f(x, array(1))
        return
    for _ in range(2):
        got = f(x, array(1))["x"]
        assert isinstance(got, jax.Array) and got is not x
        assert (got.dtype, got.weak_type) == (expected.dtype, expected.weak_type)
        assert got.sharding == expected.sharding and got.committed == expected.committed
        np.testing.assert_array_equal(got, expected)


def test_the_result_never_shares_memory_with_a_numpy_input() -> None:
    f = filter_jit(lambda x: x)
    for size in (1, 16, 1024, 2**16):
        numbers = np.arange(size, dtype=np.float32)
        out = f(numbers)
        numbers[:] = -1
        np.testing.assert_array_equal(out, np.arange(size))


def test_a_numpy_input_under_x64() -> None:
    f = filter_jit(lambda x: (x, x + 1))
    assert [y.dtype for y in f(np.ones(2))] == [jnp.float32, jnp.float32]
    with jax.enable_x64(True):
        assert [y.dtype for y in f(np.ones(2))] == [jnp.float64, jnp.float64]
    assert [y.dtype for y in f(np.ones(2))] == [jnp.float32, jnp.float32]


# --- under transformations


def both(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x, x * y


def test_under_vmap_grad_and_jit() -> None:
    f = filter_jit(both)
    x, y = array(2, 3, start=1), array(2, 3, start=7)
    assert_same(jax.vmap(f)(x, y), (x, x * y))
    assert_same(jax.vmap(f, in_axes=(0, None))(x, y[0]), (x, x * y[0]))
    assert_same(jax.vmap(f, in_axes=(None, 0))(x[0], y), (jnp.stack([x[0], x[0]]), x[0] * y))
    assert_same(jax.jit(f)(x, y), (x, x * y))

    def loss(x: jax.Array, y: jax.Array) -> jax.Array:
        a, b = f(x, y)
        return jnp.sum(3 * a + b)

    assert_same(jax.grad(loss, argnums=(0, 1))(x, y), (3 + y, x))
    assert_same(partax.filter_grad(loss)(x, y), 3 + y)
    assert_same(jax.jvp(f, (x, y), (x, y))[1], (x, 2 * x * y))
    again = filter_jit(lambda x, y: f(*f(x, y)))
    first, second = again(x, y)
    assert first is x
    assert_same(second, x * x * y)


def test_a_changed_array_is_not_forwarded() -> None:
    x = array(4)
    reshaped, converted, same = filter_jit(lambda x: (x.reshape(2, 2), x.astype(int), x + 0))(x)
    assert_same((reshaped, converted), (array(2, 2), jnp.arange(4)))
    assert same is not x
