"""An output that is an input is the same array object: no copy, no dispatch."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from conftest import TraceCounter
from partax import filter_jit
from trees import Pair, array, assert_close, assert_same, make_model, over_samples


def arrays(tree: Any) -> list[jax.Array]:
    return [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]


@over_samples
def test_the_identity_returns_the_same_arrays(make: Any) -> None:
    f = filter_jit(lambda tree: tree)
    for _ in range(3):
        tree = make()
        out = f(tree)
        assert_same(out, jax.tree.map(lambda x: x, tree))
        leaves = jax.tree.leaves(tree)
        for old, new in zip(leaves, jax.tree.leaves(out), strict=True):
            assert new is old or not isinstance(old, jax.Array)


def test_only_the_first_appearance_is_forwarded() -> None:
    f = filter_jit(lambda x: (x, {"again": x}, [x + 1, x]))
    for _ in range(3):
        x = array(3)
        first, second, (third, fourth) = f(x)
        assert first is x and second["again"] is not x and fourth is not x
        assert second["again"] is not fourth
        assert_same((second["again"], third, fourth), (x, x + 1, x))


def test_one_array_in_two_places_is_two_inputs() -> None:
    f = filter_jit(lambda x, y: (y, x))
    x, y = array(3), array(3)
    out = f(x, y)
    assert out[0] is y and out[1] is x
    out = f(x, x)
    assert out[0] is x and out[1] is x


def test_the_frozen_half_of_a_model(traces: TraceCounter) -> None:
    @filter_jit
    def step(trained: Any, frozen: Any, x: jax.Array) -> Any:
        traces.tick()

        def loss(trained: Any) -> jax.Array:
            return jnp.sum(eqx.combine(trained, frozen)(x) ** 2)

        grads = jax.grad(loss)(trained)
        new = jax.tree.map(lambda p, g: p - 0.1 * g, trained, grads)
        return eqx.combine(new, frozen)

    mlp = eqx.nn.MLP(3, 3, 3, 3, key=jax.random.key(0))
    spec = jax.tree.map(lambda _: False, mlp)
    spec = eqx.tree_at(lambda m: m.layers[-1].weight, spec, True)
    for _ in range(3):
        trained, frozen = eqx.partition(mlp, spec)
        new = step(trained, frozen, array(3))
        assert new.layers[-1].weight is not mlp.layers[-1].weight
        assert not np.array_equal(new.layers[-1].weight, mlp.layers[-1].weight)
        for old, kept in zip(arrays(frozen), arrays(eqx.filter(new, spec, inverse=True)), strict=True):
            assert kept is old
        assert type(new) is eqx.nn.MLP and new.activation is mlp.activation
        mlp = new
    assert traces.count == 1


def test_arrays_of_the_wrapped_callable() -> None:
    model = make_model()

    class Holder(eqx.Module):
        model: Any

        def __call__(self, x: jax.Array) -> Any:
            return self.model, self.model(x)

    out, y = filter_jit(Holder(model))(array(3))
    assert [a is b for a, b in zip(arrays(out), arrays(model), strict=True)] == [True] * 4
    assert_close(y, model(array(3)))


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


def test_forwarded_through_two_wrappers() -> None:
    inner = filter_jit(lambda tree: tree)
    outer = filter_jit(lambda tree, n: (inner(tree), n))
    tree = {"a": array(2), "b": [array(3), 1]}
    out, n = outer(tree, 4)
    assert out["a"] is tree["a"] and out["b"][0] is tree["b"][0]
    assert (out["b"][1], n) == (1, 4)


def test_a_changed_array_is_not_forwarded() -> None:
    x = array(4)
    reshaped, converted, same = filter_jit(lambda x: (x.reshape(2, 2), x.astype(int), x + 0))(x)
    assert_same((reshaped, converted), (array(2, 2), jnp.arange(4)))
    assert same is not x
