"""The first call of a large regression: an unrolled loop that compiles for minutes, and a scan that does not.

    python bench/stories/slow_first_call.py [--scale F] [--chunks N] [--steps N] [--quick]

Ridge regression by gradient descent over a matrix of 54,203 rows and 8,563 columns (1.9 GB as float32), in chunks of
rows so that no intermediate result is as large as the matrix. Written as a Python loop, each chunk is traced and
compiled by itself; as `jax.lax.scan` over `jax.checkpoint`, all chunks are one body. partax.report() tells tracing,
lowering and compiling apart, so that nobody takes the seconds of the one for those of the other.

At full size the same program is only compiled, from shapes, which allocates nothing: XLA tells what memory it would
take.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

import partax

ROWS, COLUMNS = 54_203, 8_563
RATE, RIDGE = 0.1, 1e-3


def chunk_loss(weights: jax.Array, rows: jax.Array, targets: jax.Array) -> jax.Array:
    """The squared error of one chunk of rows."""
    return jnp.sum((jnp.tanh(rows @ weights) - targets) ** 2)


def unrolled_loss(weights: jax.Array, rows: jax.Array, targets: jax.Array) -> jax.Array:
    """All chunks, in a Python loop: the program has the body as often as there are chunks."""
    total = jnp.zeros(())
    for chunk, target in zip(rows, targets, strict=True):
        total += jax.checkpoint(chunk_loss)(weights, chunk, target)
    return total / targets.size + RIDGE * weights @ weights


def scanned_loss(weights: jax.Array, rows: jax.Array, targets: jax.Array) -> jax.Array:
    """All chunks, in a scan: the program has the body once."""

    def body(total: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + jax.checkpoint(chunk_loss)(weights, *chunk), None

    total, _ = jax.lax.scan(body, jnp.zeros(()), (rows, targets))
    return total / targets.size + RIDGE * weights @ weights


Loss = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def descent(loss: Loss) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """One step of gradient descent, named after its loss."""

    def step(weights: jax.Array, rows: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, gradient = partax.filter_value_and_grad(loss)(weights, rows, targets)
        return value, weights - RATE * gradient

    step.__name__ = f"{loss.__name__.removesuffix('_loss')}_step"
    return partax.filter_jit(step)


def main() -> None:
    """Runs the story."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.05, help="rows and columns as parts of 54,203 and 8,563")
    parser.add_argument("--chunks", type=int, default=200, help="how many chunks the rows are cut into")
    parser.add_argument("--steps", type=int, default=5, help="steps of gradient descent")
    parser.add_argument("--quick", action="store_true", help="as small as it makes sense")
    given = parser.parse_args()
    scale, chunks, steps = (0.01, 4, 2) if given.quick else (given.scale, given.chunks, given.steps)

    height, columns = max(1, round(ROWS * scale) // chunks), max(1, round(COLUMNS * scale))
    print(f"{chunks} chunks of {height} rows and {columns} columns")
    first, second = jax.random.split(jax.random.key(0))
    rows = jax.random.normal(first, (chunks, height, columns)) / columns**0.5
    targets = jnp.tanh(rows @ jax.random.normal(second, (columns,)))

    start = time.perf_counter()
    steps_by_name = [descent(scanned_loss), descent(unrolled_loss)]
    print(f"decorating both takes {1e6 * (time.perf_counter() - start):.0f} us; the first call does the work:")
    results: list[list[float]] = []
    for step in steps_by_name:
        weights = jnp.zeros(columns)
        values: list[float] = []
        for _ in range(steps):
            start = time.perf_counter()
            value, weights = step(weights, rows, targets)
            values.append(float(value))
            print(f"  {step.__name__}: loss {values[-1]:.5f} after {time.perf_counter() - start:.3f} s")
        results.append(values)
    assert all(abs(a - b) <= 1e-3 * abs(a) for a, b in zip(*results, strict=True)), "they compute the same"
    print()
    print(partax.report())

    print(f"\nat full size ({ROWS} x {COLUMNS}), compiled from shapes:")
    full = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((COLUMNS,), (200, 271, COLUMNS), (200, 271)))
    memory = descent(scanned_loss).lower(*full).compile().memory_analysis()
    arguments, temporaries = memory.argument_size_in_bytes / 1e9, memory.temp_size_in_bytes / 1e9
    print(f"  arguments {arguments:.2f} GB, temporaries {temporaries:.3f} GB")


if __name__ == "__main__":
    main()
