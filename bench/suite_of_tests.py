"""A suite of 120 tests as users write them, each of which compiles a train step: bench/warm_start.py runs it twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partax

LAYERS: dict[str, Callable[[int, jax.Array], Any]] = {
    "linear": lambda width, key: eqx.nn.Linear(width, width, key=key),
    "MLP": lambda width, key: eqx.nn.MLP(width, width, 2 * width, 2, key=key),
    "deep MLP": lambda width, key: eqx.nn.MLP(width, width, width, 5, jax.nn.gelu, key=key),
    "normed": lambda width, key: eqx.nn.Sequential([eqx.nn.LayerNorm(width), eqx.nn.Linear(width, width, key=key)]),
    "activated": lambda width, key: eqx.nn.Sequential(
        [eqx.nn.Linear(width, width, key=key), eqx.nn.Lambda(jnp.tanh), eqx.nn.Linear(width, width, key=key)]
    ),
}
OPTIMIZERS = {"sgd": optax.sgd(1e-2), "adam": optax.adam(1e-2), "adamw": optax.adamw(1e-2), "lion": optax.lion(1e-2)}


def squared(model: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def absolute(model: Any, x: Any, y: Any) -> Any:
    return jnp.mean(jnp.abs(jax.vmap(model)(x) - y))


def huber(model: Any, x: Any, y: Any) -> Any:
    return jnp.mean(optax.huber_loss(jax.vmap(model)(x), y))


@pytest.mark.parametrize("width", [3, 6])
@pytest.mark.parametrize("loss", [squared, absolute, huber])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_step_makes_the_loss_less(layer: str, optimizer: str, loss: Callable[..., Any], width: int) -> None:
    model = LAYERS[layer](width, jax.random.key(0))
    chance = np.random.default_rng(0)
    x, y = chance.normal(size=(16, width)).astype("f4"), chance.normal(size=(16, width)).astype("f4")
    rule = OPTIMIZERS[optimizer]
    state = rule.init(partax.filter(model, partax.is_inexact_array))

    @partax.filter_jit
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        value, gradient = partax.filter_value_and_grad(loss)(model, x, y)
        updates, state = rule.update(gradient, state, partax.filter(model, partax.is_inexact_array))
        return partax.apply_updates(model, updates), state, value

    losses = []
    for _ in range(5):
        model, state, value = step(model, state, x, y)
        losses.append(float(value))
    assert losses[-1] < losses[0]
