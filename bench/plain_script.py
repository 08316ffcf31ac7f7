"""A script of plain JAX, as users write it: bench/warm_start.py runs it, and `partax run` runs it unchanged."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import time

import jax
import jax.numpy as jnp

Layer = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Config:
    width: int
    heads: int
    depth: int
    rate: float


def start(key: jax.Array, config: Config) -> list[Layer]:
    """The layers of a transformer."""

    def matrix(key: jax.Array, *shape: int) -> jax.Array:
        return shape[0] ** -0.5 * jax.random.normal(key, shape)

    width = config.width
    layers: list[Layer] = []
    for layer in jax.random.split(key, config.depth):
        keys = jax.random.split(layer, 4)
        shapes = {
            "qkv": (width, 3 * width),
            "out": (width, width),
            "up": (width, 4 * width),
            "down": (4 * width, width),
        }
        layers.append({name: matrix(key, *shape) for key, (name, shape) in zip(keys, shapes.items(), strict=True)})
    return layers


def normed(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-6)


def predict(layers: list[Layer], x: jax.Array, heads: int) -> jax.Array:
    for layer in layers:
        q, k, v = jnp.split((normed(x) @ layer["qkv"]).reshape(*x.shape[:2], heads, -1), 3, axis=-1)
        scores = jnp.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
        x = x + jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v).reshape(x.shape) @ layer["out"]
        x = x + jax.nn.gelu(normed(x) @ layer["up"]) @ layer["down"]
    return x


def loss(layers: list[Layer], x: jax.Array, heads: int) -> jax.Array:
    return jnp.mean(predict(layers, x, heads) ** 2)


@functools.partial(jax.jit, static_argnames="config", donate_argnums=(0, 1))
def step(
    layers: list[Layer], momentum: list[Layer], x: jax.Array, config: Config
) -> tuple[list[Layer], list[Layer], jax.Array]:
    value, gradient = jax.value_and_grad(loss)(layers, x, config.heads)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    return jax.tree.map(lambda p, m: p - config.rate * m, layers, momentum), momentum, value


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--rate", type=float, default=1e-2)
    options = parser.parse_args()
    config = Config(options.width, options.heads, options.depth, options.rate)
    layers = start(jax.random.key(0), config)
    momentum = jax.tree.map(jnp.zeros_like, layers)
    x = jax.block_until_ready(jax.random.normal(jax.random.key(1), (4, 16, config.width)))
    begin = time.perf_counter()
    layers, momentum, value = jax.block_until_ready(step(layers, momentum, x, config))
    print(time.perf_counter() - begin)
    for _ in range(20):
        layers, momentum, value = step(layers, momentum, x, config)
    float(value)


if __name__ == "__main__":
    main()
