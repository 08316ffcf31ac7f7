"""Train a residual network on handwritten digits: its layers are scanned, its parameters are dictionaries."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import partax

Data = tuple[np.ndarray, np.ndarray]
Params = dict[str, Any]


@dataclass(frozen=True)
class Config:
    depth: int
    width: int = 64
    activation: str = "gelu"
    remat: bool = False


def init(config: Config, key: jax.Array) -> Params:
    keys = jax.random.split(key, 4)
    d, w = config.depth, config.width
    return {
        "embed": {"w": jax.random.normal(keys[0], (64, w)) / 8, "b": jnp.zeros(w)},
        "layers": {
            "scale": jnp.ones((d, w)),
            "up": jax.random.normal(keys[1], (d, w, 2 * w)) / w**0.5,
            "down": jax.random.normal(keys[2], (d, 2 * w, w)) / (2 * w * d) ** 0.5,
        },
        "head": {"w": jax.random.normal(keys[3], (w, 10)) / w**0.5, "b": jnp.zeros(10)},
    }


def forward(params: Params, x: jax.Array, key: jax.Array | None, rate: Any, config: Config) -> jax.Array:
    activation = getattr(jax.nn, config.activation)

    def layer(x: jax.Array, inputs: tuple[Params, Any]) -> tuple[jax.Array, None]:
        p, key = inputs
        normed = p["scale"] * x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        hidden = activation(normed @ p["up"])
        if key is not None:
            hidden = jnp.where(jax.random.bernoulli(key, 1 - rate, hidden.shape), hidden / (1 - rate), 0)
        return x + hidden @ p["down"], None

    if config.remat:
        layer = jax.checkpoint(layer)
    keys = None if key is None else jax.random.split(key, config.depth)
    x = x @ params["embed"]["w"] + params["embed"]["b"]
    x, _ = jax.lax.scan(layer, x, (params["layers"], keys))
    return x @ params["head"]["w"] + params["head"]["b"]


def make_optimizer(peak: float, steps: int) -> optax.GradientTransformation:
    return optax.adamw(optax.cosine_decay_schedule(peak, steps), weight_decay=1e-3)


@partax.filter_jit(donate=("params", "opt_state"), dynamic=("rate",))
def train_step(
    params: Params, opt_state: Any, batch: Data, key: jax.Array, rate: float, *, config: Config, optimizer: Any
) -> tuple[Params, Any, jax.Array]:
    def mean_loss(params: Params) -> jax.Array:
        x, y = batch
        logits = forward(params, x, key, rate, config)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    loss, grads = jax.value_and_grad(mean_loss)(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


@partax.filter_jit
def accuracy(params: Params, batch: Data, *, config: Config) -> jax.Array:
    x, y = batch
    return jnp.mean(jnp.argmax(forward(params, x, None, 0.0, config), axis=1) == y)


def load() -> tuple[Data, Data]:
    """1,500 images to train with, and the other 297 to test with."""
    digits: Any = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int32)
    return (images[:1500], labels[:1500]), (images[1500:], labels[1500:])


def batches(data: Data, size: int, seed: int) -> Iterator[Data]:
    rng = np.random.default_rng(seed)
    while True:
        chosen = rng.choice(len(data[0]), size, replace=False)
        yield data[0][chosen], data[1][chosen]


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--depth", type=int, default=6)
    options = parser.parse_args(arguments)

    data, held_out = load()
    config = Config(depth=options.depth)
    optimizer = make_optimizer(3e-3, options.steps)
    params = init(config, jax.random.key(0))
    opt_state = optimizer.init(params)
    losses, stream = [], batches(data, 64, seed=1)
    for i, key in enumerate(jax.random.split(jax.random.key(1), options.steps)):
        rate = 0.2 * (1 - i / options.steps)  # less and less dropout
        params, opt_state, loss = train_step(
            params, opt_state, next(stream), key, rate, config=config, optimizer=optimizer
        )
        losses.append(loss)

    share = float(accuracy(params, held_out, config=config))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, accuracy on held-out images {share:.2%}")
    return {"losses": [float(loss) for loss in losses], "accuracy": share, "arrays": jax.tree.leaves(params)}


if __name__ == "__main__":
    main()
