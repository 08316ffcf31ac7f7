"""Healthy programs as users of Equinox and optax write them."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from examining import Call, floats, ints
from healthy_program import CORPUS, Healthy, built, healthy, random_key, squares, training
from jax import lax

import partax


def entropy(model: Any, x: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(x), labels).mean()


def labels(parameters: Any) -> Any:
    return jax.tree.map(lambda leaf: "bias" if leaf.ndim == 1 else "weight", parameters)


OPTIMISERS = {
    "perceptron_sgd": optax.sgd(0.1),
    "warm_up_and_decay": optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 100, 1000)),
    "clipped_chain": optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=1e-2)),
    "two_learning_rates": optax.multi_transform({"bias": optax.sgd(0.1), "weight": optax.adam(1e-3)}, labels),
    "steps_in_one": optax.MultiSteps(optax.adam(1e-3), every_k_schedule=4),
}


def perceptron_with(optimiser: Any) -> Call:
    return training(built(eqx.nn.MLP, 4, 3, 32, 2), optimiser, squares, floats(8, 4), floats(8, 3))


CORPUS += [Healthy(name, partial(perceptron_with, optimiser)) for name, optimiser in OPTIMISERS.items()]


@healthy
def perceptron_momentum_donated() -> Call:
    model = built(eqx.nn.MLP, 784, 10, 1024, 2, activation=jax.nn.gelu)
    optimiser = optax.sgd(0.1, momentum=0.9, nesterov=True)
    return training(model, optimiser, entropy, floats(64, 784), ints(64), jit=eqx.filter_jit(donate="all"))


class Convolutional(eqx.Module):
    layers: list[Any]

    def __init__(self, key: Any) -> None:
        a, b, c = jax.random.split(key, 3)
        self.layers = [
            eqx.nn.Conv2d(1, 8, 3, key=a), eqx.nn.MaxPool2d(2, 2), jax.nn.relu,
            eqx.nn.Conv2d(8, 16, 3, key=b), eqx.nn.AvgPool2d(2, 2), jax.nn.relu,
            jnp.ravel, eqx.nn.Linear(16 * 5 * 5, 10, key=c), jax.nn.log_softmax,
        ]  # fmt: skip

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


@healthy
def convolutions() -> Call:
    return training(built(Convolutional), optax.adam(1e-3), entropy, floats(4, 1, 28, 28), ints(4))


class Recurrent(eqx.Module):
    cell: Any
    head: Any

    def __init__(self, kind: Any, key: Any) -> None:
        self.cell = kind(3, 16, key=key)
        self.head = eqx.nn.Linear(16, 1, key=key)

    def __call__(self, xs: Any) -> Any:
        state = jnp.zeros(16)
        state = (state, state) if isinstance(self.cell, eqx.nn.LSTMCell) else state
        state, _ = lax.scan(lambda state, x: (self.cell(x, state), None), state, xs)
        return self.head(state[0] if isinstance(state, tuple) else state)


@healthy
def gated_recurrent_unit() -> Call:
    model = built(Recurrent, eqx.nn.GRUCell)
    return training(model, optax.adam(1e-3), squares, floats(4, 20, 3), floats(4, 1))


class Block(eqx.Module):
    norms: tuple[Any, Any]
    attention: Any
    mlp: Any

    def __init__(self, key: Any, size: int = 32) -> None:
        a, b = jax.random.split(key)
        self.norms = eqx.nn.LayerNorm(size), eqx.nn.LayerNorm(size)
        self.attention = eqx.nn.MultiheadAttention(4, size, use_query_bias=True, use_output_bias=True, key=a)
        self.mlp = eqx.nn.MLP(size, size, 4 * size, 1, jax.nn.gelu, key=b)

    def __call__(self, x: Any) -> Any:
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


class Vision(eqx.Module):
    patches: Any
    place: Any
    blocks: list[Any]
    head: Any

    def __init__(self, depth: int, key: Any) -> None:
        keys = jax.random.split(key, depth)
        self.patches = eqx.nn.Conv2d(3, 32, 4, stride=4, key=key)
        self.place = jax.random.normal(key, (64, 32))
        self.blocks = [Block(k) for k in keys]
        self.head = eqx.nn.Linear(32, 10, key=key)

    def __call__(self, image: Any) -> Any:
        x = self.patches(image).reshape(32, -1).T + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(0))


@healthy
def vision_transformer() -> Call:
    """Four blocks, so an update of some 60 arrays."""
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    return training(built(Vision, 4), optimiser, entropy, floats(4, 3, 32, 32), ints(4))


def stacked_blocks(depth: int, size: int) -> Any:
    keys = jax.eval_shape(lambda key: jax.random.split(key, depth), random_key())
    return eqx.filter_eval_shape(eqx.filter_vmap(lambda key: Block(key, size)), keys)


@healthy
def deep_transformer_scanned() -> Call:
    """Twelve blocks of the size of a small language model, stacked; the state is given away."""

    def loss(blocks: Any, x: Any) -> Any:
        return jnp.mean(partax.fold(blocks, x, call=lambda block, x: jax.vmap(block)(x), remat=True) ** 2)

    jit = partax.filter_jit(donate="all")
    return training(stacked_blocks(12, 768), optax.adamw(1e-4), loss, floats(4, 256, 768), jit=jit)


@healthy
def large_transformer_at_inference() -> Call:
    """1.2 GB of weights, of which none can be given away."""

    def apply(blocks: Any, x: Any) -> Any:
        return partax.fold(blocks, x)

    return partax.filter_jit(apply), (stacked_blocks(24, 1024), floats(512, 1024))
