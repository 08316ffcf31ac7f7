"""The first call of a large regression, from minutes to a second: each step is what the doctor has advised.

    python bench/stories/slow_first_call.py [--scale F] [--chunks N] [--steps N] [--quick]

Ridge regression by gradient descent over a matrix of 54,203 rows and 8,563 columns (1.9 GB as float32), in chunks of
rows so that no intermediate result is as large as the matrix. As its user wrote it, the first call takes minutes, the
second compiles again, and nothing says why. partax.doctor reads each version's program, without running it, and the
next version does what the worst finding says. After each, the equations, the seconds of the compiler, the peak of
memory and the seconds of the first and of the second call are printed.

At full size the program is examined from shapes, which allocates nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import partax

ROWS, COLUMNS = 54_203, 8_563
RATE, RIDGE = 0.1, 1e-3

Loss = Callable[[jax.Array, Any, Any], jax.Array]


def chunk_loss(weights: jax.Array, rows: jax.Array, targets: jax.Array) -> jax.Array:
    """The squared error of one chunk of rows."""
    return jnp.sum((jnp.tanh(rows @ weights) - targets) ** 2)


def unrolled_loss(weights: jax.Array, rows: Any, targets: Any) -> jax.Array:
    """All chunks, in a Python loop."""
    total = jnp.zeros(())
    for i in range(len(targets)):
        total += chunk_loss(weights, rows[i], targets[i])
    return total / targets.size + RIDGE * weights @ weights


def scanned_loss(weights: jax.Array, rows: Any, targets: Any) -> jax.Array:
    """All chunks, in a scan."""

    def body(total: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + chunk_loss(weights, *chunk), None

    return jax.lax.scan(body, jnp.zeros(()), (rows, targets))[0] / targets.size + RIDGE * weights @ weights


def checkpointed_loss(weights: jax.Array, rows: Any, targets: Any) -> jax.Array:
    """The same, with what the backward pass needs of a chunk computed again."""

    def body(total: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + jax.checkpoint(chunk_loss)(weights, *chunk), None

    return jax.lax.scan(body, jnp.zeros(()), (rows, targets))[0] / targets.size + RIDGE * weights @ weights


def step_over(loss: Loss, weights: jax.Array, best: Any, rows: Any, targets: Any) -> tuple[jax.Array, jax.Array]:
    """One step of gradient descent, with the best loss so far."""
    value, gradient = jax.value_and_grad(loss)(weights, rows, targets)
    return weights - RATE * gradient, jnp.minimum(best, value)


@dataclasses.dataclass
class Version:
    """One version of the program: what was changed, its step, its first state, and its other arguments."""

    change: str
    step: Any
    state: tuple[Any, ...]
    data: tuple[Any, ...]


def versions(rows: jax.Array, targets: jax.Array) -> list[Version]:
    """As the user wrote it, and then what each advice makes of it."""
    weights = jnp.zeros(rows.shape[-1])

    @jax.jit
    def unrolled(weights: jax.Array, best: Any) -> Any:
        return step_over(unrolled_loss, weights, best, rows, targets)

    @jax.jit
    def captured(weights: jax.Array, best: Any) -> Any:
        return step_over(scanned_loss, weights, best, rows, targets)

    @jax.jit
    def scanned(weights: jax.Array, best: Any, rows: Any, targets: Any) -> Any:
        return step_over(scanned_loss, weights, best, rows, targets)

    weak, strong, data = float("inf"), jnp.float32(jnp.inf), (rows, targets)
    return [
        Version("as its user wrote it", unrolled, (weights, weak), ()),
        Version("the loop is a scan", captured, (weights, weak), ()),
        Version("the data are arguments", scanned, (weights, weak), data),
        Version("the state begins with the type that it goes on with", scanned, (weights, strong), data),
    ]


def run(version: Version, steps: int) -> list[float]:
    """Examines a version, runs it, and prints what each has shown."""
    print(f"\n{version.change}")
    diagnosis = partax.doctor(version.step, *version.state, *version.data)
    for finding in diagnosis.findings:
        print(f"  {finding.severity}: {finding.kind} at {finding.where}: {finding.message}")
        print(f"    -> {finding.advice}")
    if not diagnosis.findings:
        print("  nothing found")
    jax.clear_caches()
    begin = time.perf_counter()
    compiled = version.step.lower(*version.state, *version.data).compile()
    seconds = time.perf_counter() - begin
    memory = compiled.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    jax.clear_caches()
    state, calls, best = version.state, [], []
    for _ in range(steps):
        begin = time.perf_counter()
        state = version.step(*state, *version.data)
        best.append(float(state[1]))
        calls.append(time.perf_counter() - begin)
    print(
        f"  {diagnosis.figures['equations']} equations, {seconds:.2f} s to lower and compile, "
        f"peak {peak / 1e6:.1f} MB, calls {', '.join(f'{call:.2f}' for call in calls[:3])} s, best loss {best[-1]:.5f}"
    )
    return best


def examine_at_full_size(chunks: int) -> None:
    """Examines the loop and the scans at full size, from shapes."""
    print(f"\nat full size ({ROWS} x {COLUMNS}), from shapes:")
    height = -(-ROWS // chunks)
    shapes = ((COLUMNS,), (), (chunks, height, COLUMNS), (chunks, height))
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    for loss in (unrolled_loss, scanned_loss, checkpointed_loss):
        before, begin = peak_memory(), time.perf_counter()
        diagnosis = partax.doctor(lambda *given, loss=loss: step_over(loss, *given), *arguments)
        seconds, memory = time.perf_counter() - begin, peak_memory() - before
        kinds = ", ".join(f"{it.kind} at {it.where}" for it in diagnosis.findings) or "nothing found"
        peak = float(diagnosis.figures.get("peak_bytes", 0)) / 1e9
        print(f"  {loss.__name__}: {kinds}; peak {peak:.2f} GB; examined in {seconds:.2f} s with {memory / 1e6:.0f} MB")


def peak_memory() -> int:
    """The most bytes that this process has had so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    """Runs the story."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.05, help="rows and columns as parts of 54,203 and 8,563")
    parser.add_argument("--chunks", type=int, default=100, help="how many chunks the rows are cut into")
    parser.add_argument("--steps", type=int, default=5, help="steps of gradient descent")
    parser.add_argument("--quick", action="store_true", help="as small as it makes sense")
    given = parser.parse_args()
    scale, chunks, steps = (0.02, 20, 2) if given.quick else (given.scale, given.chunks, given.steps)

    examine_at_full_size(chunks)
    height, columns = max(1, round(ROWS * scale) // chunks), max(1, round(COLUMNS * scale))
    print(f"\n{chunks} chunks of {height} rows and {columns} columns")
    first, second = jax.random.split(jax.random.key(0))
    rows = jax.random.normal(first, (chunks, height, columns)) / columns**0.5
    targets = jnp.tanh(rows @ jax.random.normal(second, (columns,)))
    results = [run(version, steps) for version in versions(rows, targets)]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-3)  # they compute the same


if __name__ == "__main__":
    main()
