"""Healthy programs as users of Flax write them: nnx modules, changed in place, and linen's `apply`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from examining import Call, floats, ints
from flax import linen, nnx
from healthy_program import CORPUS, Healthy, healthy, random_key

import partax


def abstract(make: Any) -> Any:
    """A module or an optimiser as types: nothing is computed."""
    return nnx.eval_shape(make)


class Perceptron(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(8, 32, rngs=rngs)
        self.second = nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.second(nnx.relu(self.first(x)))


class Convolutional(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.head = nnx.Linear(8, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.head(nnx.relu(self.norm(self.conv(x))).mean((1, 2)))


class Dropped(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(8, 32, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.second = nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.second(self.dropout(nnx.gelu(self.first(x))))


def squares(model: Any, x: Any, y: Any) -> Any:
    return jnp.mean((model(x) - y) ** 2)


def entropy(model: Any, x: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(model(x), labels).mean()


def training(kind: Any, loss: Any, *data: Any, jit: Any = partax.nnx.jit, optimiser: Any = None) -> Call:
    def step(model: Any, optimiser: Any, *data: Any) -> Any:
        value, slope = nnx.value_and_grad(loss)(model, *data)
        optimiser.update(model, slope)
        return value

    def make() -> Any:
        model = kind(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optimiser or optax.adam(1e-3), wrt=nnx.Param)

    return jit(step), (*abstract(make), *data)


TRAININGS = {
    "nnx_perceptron": lambda: training(Perceptron, squares, floats(16, 8), floats(16, 4)),
    "nnx_perceptron_by_flax": lambda: training(Perceptron, squares, floats(16, 8), floats(16, 4), jit=nnx.jit),
    "nnx_batch_normalisation": lambda: training(Convolutional, entropy, floats(4, 16, 16, 3), ints(4)),
    "nnx_dropout": lambda: training(Dropped, squares, floats(16, 8), floats(16, 4), optimiser=optax.sgd(0.1, 0.9)),
}
CORPUS += [Healthy(name, make) for name, make in TRAININGS.items()]


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        x = linen.LayerNorm()(linen.relu(linen.Dense(32)(x)))
        return linen.Dense(4)(x)


@healthy
def linen_training() -> Call:
    model, optimiser = Linen(), optax.adamw(1e-3)

    def step(variables: Any, state: Any, x: Any, y: Any) -> Any:
        slope = jax.grad(lambda it: jnp.mean((model.apply(it, x) - y) ** 2))(variables)
        updates, state = optimiser.update(slope, state, variables)
        return optax.apply_updates(variables, updates), state

    variables = jax.eval_shape(model.init, random_key(), floats(1, 8))
    return jax.jit(step), (variables, jax.eval_shape(optimiser.init, variables), floats(16, 8), floats(16, 4))
