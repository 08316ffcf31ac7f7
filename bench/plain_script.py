"""A script of plain JAX, as users write it: bench/warm_start.py runs it, and `partax run` runs it unchanged."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import time

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Config:
    width: int
    depth: int
    rate: float


def start(key: jax.Array, config: Config) -> list[dict[str, jax.Array]]:
    keys = jax.random.split(key, config.depth)
    scale = config.width**-0.5
    return [{"w": scale * jax.random.normal(key, (config.width,) * 2), "b": jnp.zeros(config.width)} for key in keys]


def predict(layers: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    for layer in layers:
        x = x + jax.nn.gelu((x - x.mean(-1, keepdims=True)) @ layer["w"] + layer["b"])
    return x


def loss(layers: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    return jnp.mean(predict(layers, x) ** 2)


@functools.partial(jax.jit, static_argnames="config", donate_argnums=(0, 1))
def step(
    layers: list[dict[str, jax.Array]], momentum: list[dict[str, jax.Array]], x: jax.Array, config: Config
) -> tuple[list[dict[str, jax.Array]], list[dict[str, jax.Array]], jax.Array]:
    value, gradient = jax.value_and_grad(loss)(layers, x)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    return jax.tree.map(lambda p, m: p - config.rate * m, layers, momentum), momentum, value


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=48)
    parser.add_argument("--rate", type=float, default=1e-2)
    options = parser.parse_args()
    config = Config(options.width, options.depth, options.rate)
    layers = start(jax.random.key(0), config)
    momentum = jax.tree.map(jnp.zeros_like, layers)
    x = jax.block_until_ready(jnp.ones((32, config.width)))
    begin = time.perf_counter()
    layers, momentum, value = jax.block_until_ready(step(layers, momentum, x, config))
    print(time.perf_counter() - begin)
    for _ in range(20):
        layers, momentum, value = step(layers, momentum, x, config)
    float(value)


if __name__ == "__main__":
    main()
