"""Train a Flax nnx CNN on handwritten digits, in place: dropout, batch statistics, an optimizer and metrics."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

Data = tuple[np.ndarray, np.ndarray]


class Block(nnx.Module):
    def __init__(self, channels: int, width: int, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(channels, width, (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.dropout(nnx.relu(self.norm(self.conv(x))))


class Cnn(nnx.Module):
    def __init__(self, depth: int, width: int, rngs: nnx.Rngs) -> None:
        self.blocks = nnx.List([Block(1 if i == 0 else width, width, rngs) for i in range(depth)])
        self.head = nnx.Linear(16 * width, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        x = images
        for block in self.blocks:
            x = block(x)
        x = nnx.max_pool(x, (2, 2), strides=(2, 2))
        return self.head(x.reshape(len(x), -1))


def cross_entropy(model: Cnn, batch: Data) -> tuple[jax.Array, jax.Array]:
    images, labels = batch
    logits = model(images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), logits


@nnx.jit
def train_step(model: Cnn, optimizer: nnx.Optimizer[Cnn], metrics: nnx.MultiMetric, batch: Data) -> None:
    (loss, logits), grads = nnx.value_and_grad(cross_entropy, has_aux=True)(model, batch)
    optimizer.update(model, grads)
    metrics.update(loss=loss, logits=logits, labels=batch[1])


@nnx.jit
def eval_step(model: Cnn, metrics: nnx.MultiMetric, batch: Data) -> None:
    loss, logits = cross_entropy(model, batch)
    metrics.update(loss=loss, logits=logits, labels=batch[1])


def load() -> tuple[Data, Data]:
    """1,500 images to train with, and the other 297 to test with."""
    digits: Any = load_digits()
    images, labels = (digits.images[..., None] / 16).astype(np.float32), digits.target.astype(np.int32)
    return (images[:1500], labels[:1500]), (images[1500:], labels[1500:])


def batches(data: Data, size: int, seed: int) -> Iterator[Data]:
    rng = np.random.default_rng(seed)
    while True:
        chosen = rng.choice(len(data[0]), size, replace=False)
        yield data[0][chosen], data[1][chosen]


def read(metrics: nnx.MultiMetric) -> dict[str, float]:
    found = {name: float(value) for name, value in metrics.compute().items()}
    metrics.reset()
    return found


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50, help="of an epoch")
    options = parser.parse_args(arguments)

    model = Cnn(depth=2, width=16, rngs=nnx.Rngs(0))
    schedule = optax.cosine_decay_schedule(5e-3, options.epochs * options.steps)
    optimizer = nnx.Optimizer(model, optax.adamw(schedule), wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())

    data, held_out = load()
    stream = batches(data, 64, seed=1)
    history: list[dict[str, float]] = []
    for epoch in range(options.epochs):
        model.train()
        for _ in range(options.steps):
            train_step(model, optimizer, metrics, next(stream))
        trained = read(metrics)
        model.eval()
        eval_step(model, metrics, held_out)
        tested = read(metrics)
        history.append({**trained, **{f"test_{name}": value for name, value in tested.items()}})
        print(f"epoch {epoch + 1}: loss {trained['loss']:.4f}, accuracy on held-out images {tested['accuracy']:.2%}")
    return {"history": history, "arrays": jax.tree.leaves(nnx.state((model, optimizer)))}


if __name__ == "__main__":
    main()
