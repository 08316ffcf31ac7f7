"""Train a Flax nnx CNN on scikit-learn's handwritten digits, in place, by three ways to compile its step.

    python bench/train_flax_digits.py [--depth N] [--width N] [--batch-size N] [--steps N] [--seed N]

`nnx.jit`, `nnx.jit_partial` and `partax.nnx.jit` each train a model of their own, in turns, block by block in this
process. All must end with the same parameters, statistics, moments and random keys, bit for bit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import rich.box
    import rich.console
    import rich.table
    from flax import nnx
    from tqdm import tqdm

    from interleave import Timing, take_turns
    from partax import nnx as partax_nnx
    from train_digits import BLOCK, Batch, load, whole_number
except ImportError as error:
    sys.exit(f'This demo needs {error.name}: run pip install "partax[bench]"')

GOAL = 0.97
NNX_JIT, JIT_PARTIAL, PARTAX = "nnx.jit", "nnx.jit_partial", "partax.nnx.jit"
Bind = Callable[..., Callable[..., Any]]
"""Takes a function and the nnx objects that are its first arguments, and gives what takes the others."""


class Block(nnx.Module):
    def __init__(self, channels: int, width: int, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(channels, width, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.dropout(nnx.relu(self.norm(self.conv(x))))


class Cnn(nnx.Module):
    def __init__(self, depth: int, width: int, rngs: nnx.Rngs) -> None:
        self.blocks = nnx.List([Block(1 if i == 0 else width, width, rngs) for i in range(depth)])
        self.head = nnx.Linear(4 * 4 * width, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        x = images.reshape(-1, 8, 8, 1)
        for block in self.blocks:
            x = block(x)
        pooled = nnx.max_pool(x, (2, 2), strides=(2, 2))
        return self.head(pooled.reshape(len(pooled), -1))


def make_step(name: str, traces: Counter[str]) -> Callable[..., jax.Array]:
    def step(
        model: Cnn, optimizer: nnx.Optimizer[Cnn], metrics: nnx.MultiMetric, x: jax.Array, y: jax.Array
    ) -> jax.Array:
        traces[name] += 1  # Runs under tracing only.

        def mean_loss(model: Cnn) -> tuple[jax.Array, jax.Array]:
            logits = model(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits

        (loss, logits), grads = nnx.value_and_grad(mean_loss, has_aux=True)(model)
        optimizer.update(model, grads)
        metrics.update(loss=loss, logits=logits, labels=y)
        return loss

    return step


def share_of_right(model: Cnn, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean(jnp.argmax(model(x), axis=1) == y)


def bind_whole(jit: Callable[..., Any]) -> Bind:
    """For what takes nnx objects in each call, which is how most users write it."""
    return lambda fn, *objects: partial(jit(fn), *objects)


WAYS: dict[str, Bind] = {
    NNX_JIT: bind_whole(nnx.jit),
    JIT_PARTIAL: partial(nnx.jit_partial, graph=False),
    PARTAX: bind_whole(partax_nnx.jit),
}


class Contender:
    """One way to compile, with a model, an optimizer, metrics and batches of its own."""

    def __init__(self, bind: Bind, step: Callable[..., Any], options: argparse.Namespace, batches: Iterator[Batch]):
        self._bind = bind
        self._batches = batches
        self.model = Cnn(options.depth, options.width, nnx.Rngs(options.seed))
        self.optimizer = nnx.Optimizer(self.model, optax.adam(2e-3), wrt=nnx.Param)
        self.metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())
        self.model.train()
        self._step = bind(step, self.model, self.optimizer, self.metrics)

    def run_next(self, steps: int, bar: tqdm[Any]) -> float:
        """Trains on the next batches and returns the seconds of one step."""
        batches = list(islice(self._batches, steps))
        jax.block_until_ready(batches)
        begin = time.perf_counter()
        for x, y in batches:
            loss = self._step(x, y)
        loss.block_until_ready()
        seconds = time.perf_counter() - begin
        bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
        bar.update(steps)
        return seconds / steps

    def accuracy(self, x: np.ndarray, y: np.ndarray) -> float:
        self.model.eval()
        return float(self._bind(share_of_right, self.model)(jnp.asarray(x), jnp.asarray(y)))

    def state(self) -> dict[str, np.ndarray]:
        """All that training has changed, by path."""
        return {
            jax.tree_util.keystr(path): as_bits(leaf)
            for path, leaf in jax.tree.leaves_with_path((self.model, self.optimizer, self.metrics))
        }


def as_bits(array: jax.Array) -> np.ndarray:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.atleast_1d(np.asarray(array)).view(np.uint8)


def compare(states: dict[str, dict[str, np.ndarray]]) -> tuple[bool, str]:
    """Whether all ended with the same state as the first, and a line that says so."""
    (first, expected), *others = states.items()
    for name, found in others:
        if found.keys() != expected.keys():
            return False, f"different objects: {name} and {first} disagree on {sorted(found.keys() ^ expected.keys())}"
        off = [path for path in expected if not np.array_equal(expected[path], found[path])]
        if off:
            return False, f"different parameters: {name} and {first} disagree on {len(off)} arrays, first on {off[0]}"
    return True, f"same parameters: all {len(states)} agree on {len(expected)} arrays, bit for bit"


def as_table(
    timings: dict[str, Timing], first: dict[str, float], shares: dict[str, float], traces: Counter[str], title: str
) -> rich.table.Table:
    table = rich.table.Table(title=title, box=rich.box.SIMPLE)
    table.add_column("compiled by", no_wrap=True)
    for heading in ("per step", "to nnx.jit", "in total", "accuracy", "traces"):
        table.add_column(heading, justify="right")
    for name, timing in timings.items():
        total = first[name] + sum(timing.samples) * BLOCK
        table.add_row(
            name,
            f"{timing.median * 1e3:.2f} ms",
            f"{timing.over(timings[NNX_JIT]):.2f} x",
            f"{total:.2f} s",
            f"{shares[name]:.2%}",
            str(traces[name]),
        )
    return table


def option_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Train a Flax nnx CNN on handwritten digits with nnx.jit, nnx.jit_partial and partax.nnx.jit.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = partial(parser.add_argument, metavar="N")
    add("--depth", type=whole_number(1, 100), default=4, help="convolutions")
    add("--width", type=whole_number(1, 1024), default=8, help="channels of a convolution")
    add("--batch-size", type=whole_number(2, 1437), default=32, help="images in a step")
    add("--steps", type=whole_number(2 * BLOCK, 1_000_000), default=1000, help="steps of a run")
    add("--seed", type=whole_number(0, 2**31 - 1), default=0, help="weights, dropout, split and batches")
    return parser


def main() -> int:
    parser = option_parser()
    options = parser.parse_args()
    # Only the default run is known to reach the goal.
    by_default = options == parser.parse_args([])
    console = rich.console.Console()
    digits = load(options.seed)
    traces: Counter[str] = Counter()
    contenders = {
        name: Contender(bind, make_step(name, traces), options, digits.batches(options.batch_size, options.seed))
        for name, bind in WAYS.items()
    }
    blocks = options.steps // BLOCK
    with tqdm(total=blocks * BLOCK * len(contenders), unit="step", desc="training", disable=None) as bar:
        # The first block compiles: it is a part of the time in total, not of the time per step.
        first = {name: contender.run_next(BLOCK, bar) * BLOCK for name, contender in contenders.items()}
        timings = take_turns({name: partial(c.run_next, BLOCK, bar) for name, c in contenders.items()}, blocks - 1)
    states = {name: contender.state() for name, contender in contenders.items()}
    shares = {name: contender.accuracy(digits.test_x, digits.test_y) for name, contender in contenders.items()}

    title = (
        f"{blocks * BLOCK} steps each, in turns of {BLOCK}; jax {jax.__version__}, "
        f"Python {'.'.join(map(str, sys.version_info[:3]))}, {jax.devices()[0].platform}"
    )
    console.print(as_table(timings, first, shares, traces, title))
    agree, verdict = compare(states)
    console.print(verdict)

    if not agree:
        return 1
    if min(shares.values()) < GOAL and by_default:
        console.print(f"the accuracy of {min(shares.values()):.2%} is below the goal of {GOAL:.0%}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
