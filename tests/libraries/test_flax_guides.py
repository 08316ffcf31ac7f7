"""Guards the promise that what Flax's guides do with nnx.jit runs with partax.nnx.jit in its place, with one result.

Each test is named after a page of Flax's documentation, and does in words of its own what that page shows.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import partax.nnx
from nnx_graphs import both, described

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


class Perceptron(nnx.Module):
    def __init__(self, inside: int, hidden: int, outside: int, *, rngs: nnx.Rngs):
        self.first = nnx.Linear(inside, hidden, rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.norm = nnx.BatchNorm(hidden, rngs=rngs)
        self.last = nnx.Linear(hidden, outside, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(nnx.relu(self.drop(self.norm(self.first(x)))))


def a_model() -> Perceptron:
    return Perceptron(3, 8, 2, rngs=nnx.Rngs(0))


def a_batch() -> tuple[jax.Array, jax.Array]:
    return jnp.arange(12.0).reshape(4, 3) / 12, jnp.ones((4, 2))


def squared_error(model: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return ((model(x) - y) ** 2).mean()


def train_step(model: Any, optimizer: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    loss, gradients = nnx.value_and_grad(squared_error)(model, x, y)
    optimizer.update(model, gradients)
    return loss


def test_randomness_guide_tree_mode() -> None:
    class Cell(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.linear = nnx.Linear(6, 3, rngs=rngs)
            self.drop = nnx.Dropout(0.5, rngs=rngs, rng_collection="recurrent")

        def __call__(self, h: jax.Array, x: jax.Array) -> Any:
            y = self.linear(jnp.concatenate([self.drop(h), x], axis=-1))
            return y, y

    def forward(cell: Cell, x: jax.Array) -> jax.Array:
        each = nnx.with_rngs(cell, broadcast=x.shape[1], graph=False)
        axes = nnx.prefix(each, {"recurrent": 0, ...: None}, graph=False)

        @nnx.scan(in_axes=(axes, nnx.Carry, 1), out_axes=(nnx.Carry, 1), graph=False)
        def unroll(cell: Cell, h: jax.Array, x: jax.Array) -> Any:
            return cell(h, x)

        return unroll(each, jnp.zeros((2, 3)), x)[1]

    both(forward, Cell(nnx.Rngs(0, recurrent=1)), jnp.ones((2, 4, 3)), traces=1, graph=False)


def test_bridge_guide() -> None:
    from flax import linen
    from flax.nnx import bridge

    def create(x: jax.Array) -> Any:
        return bridge.lazy_init(bridge.ToNNX(linen.Dense(4), rngs=nnx.Rngs(0)), x)

    x = a_batch()[0]
    made = partax.nnx.jit(create)(x)
    assert described(nnx.state(made)) == described(nnx.state(nnx.jit(create)(x)))
    both(lambda model, x: model(x), made, x, traces=1)


@pytest.mark.skipif(not hasattr(nnx, "cached_partial"), reason="this Flax has it elsewhere")
def test_performance_considerations_cached_partial() -> None:
    adam = optax.adam(1e-2)
    results: list[Any] = []
    for jit in (nnx.jit, partax.nnx.jit):
        model = a_model()
        optimizer = nnx.Optimizer(model, adam, wrt=nnx.Param)
        kernel = model.first.kernel
        cached = nnx.cached_partial(jit(train_step), model, optimizer)
        losses = [cached(*a_batch()) for _ in range(3)]
        assert model.first.kernel is kernel
        results.append((losses, described((model, optimizer))))
        with pytest.raises(TypeError, match="dot_general"):
            cached(jnp.ones((4, 5)), a_batch()[1])
        assert jnp.isfinite(cached(*a_batch())), "a call that fails leaves nothing behind"
    theirs, ours = results
    assert theirs == ours
