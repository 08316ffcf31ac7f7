"""Train a small CNN on handwritten digits, save it, then read it again and fine-tune its last layer alone."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import partax
import partax.equinox as eqx

Data = tuple[np.ndarray, np.ndarray]


class Cnn(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    hidden: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, width: int, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.conv = eqx.nn.Conv2d(1, width, kernel_size=3, padding=1, use_bias=False, key=keys[0])
        self.norm = eqx.nn.BatchNorm(width, axis_name="batch", mode="batch", momentum=0.9)
        self.dropout = eqx.nn.Dropout(0.2)
        self.hidden = eqx.nn.Linear(16 * width, 32, key=keys[1])
        self.head = eqx.nn.Linear(32, 10, key=keys[2])

    def __call__(self, image: jax.Array, state: Any, key: jax.Array | None = None) -> tuple[jax.Array, Any]:
        x, state = self.norm(self.conv(image), state)
        x = jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 2, 2), (1, 2, 2), "VALID")
        x = jax.nn.relu(self.hidden(self.dropout(x.ravel(), key=key)))
        return self.head(x), state


def load() -> tuple[Data, Data]:
    """1,500 images to train with, and the other 297 to test with."""
    digits: Any = load_digits()
    images, labels = (digits.images[:, None] / 16).astype(np.float32), digits.target.astype(np.int32)
    return (images[:1500], labels[:1500]), (images[1500:], labels[1500:])


def batches(data: Data, size: int, seed: int) -> Iterator[Data]:
    rng = np.random.default_rng(seed)
    while True:
        chosen = rng.choice(len(data[0]), size, replace=False)
        yield data[0][chosen], data[1][chosen]


def cross_entropy(model: Cnn, state: Any, x: Any, y: Any, key: jax.Array) -> Any:
    call = jax.vmap(model, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None))
    logits, state = call(x, state, jax.random.split(key, len(x)))
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), state


@eqx.filter_jit(donate=("model", "state", "opt_state"))
def train_step(model: Cnn, state: Any, opt_state: Any, optimizer: Any, wrt: Any, batch: Data, key: Any) -> Any:
    loss_and_grad = eqx.filter_value_and_grad(cross_entropy, has_aux=True, wrt=wrt)
    (loss, state), grads = loss_and_grad(model, state, *batch, key)
    updates, opt_state = optimizer.update(grads, opt_state, eqx.filter(model, wrt))
    return eqx.apply_updates(model, updates), state, opt_state, loss


@eqx.filter_jit
def accuracy(model: Cnn, state: Any, x: Any, y: Any) -> jax.Array:
    model = eqx.nn.inference_mode(model)
    logits, _ = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)
    return jnp.mean(jnp.argmax(logits, axis=1) == y)


def train(
    model: Cnn, state: Any, optimizer: Any, wrt: Any, stream: Iterator[Data], keys: jax.Array
) -> tuple[Cnn, Any, list[float]]:
    opt_state = optimizer.init(eqx.filter(model, wrt))
    losses = []
    for key, batch in zip(keys, stream, strict=False):
        model, state, opt_state, loss = train_step(model, state, opt_state, optimizer, wrt, batch, key)
        losses.append(loss)
    return model, state, [float(loss) for loss in losses]


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--file", type=Path, default=Path("digits.eqx"))
    options = parser.parse_args(arguments)

    data, held_out = load()
    stream, (first, second) = batches(data, 64, seed=0), jax.random.split(jax.random.key(1), (2, options.steps))
    model, state = eqx.nn.make_with_state(Cnn)(8, jax.random.key(0))
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 10, max(options.steps, 11))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    model, state, losses = train(model, state, optimizer, eqx.is_inexact_array, stream, first)
    eqx.tree_serialise_leaves(options.file, (model, state))

    like = eqx.nn.make_with_state(Cnn)(8, jax.random.key(1))
    model, state = eqx.tree_deserialise_leaves(options.file, like)
    tuned, state, more = train(model, state, optax.sgd(1e-2), partax.by_path("head/*"), stream, second)

    share = float(accuracy(tuned, state, *held_out))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, tuned {more[-1]:.4f}, accuracy on held-out images {share:.2%}")
    return {"losses": losses + more, "accuracy": share, "arrays": jax.tree.leaves(eqx.filter(tuned, eqx.is_array))}


if __name__ == "__main__":
    main()
