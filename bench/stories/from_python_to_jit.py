"""SELU and a Gaussian random walk, from plain Python through lax.scan and vmap to filter_jit.

    python bench/stories/from_python_to_jit.py [--walks N] [--steps N] [--quick]

The same two programs at each stage, with what a call takes and, for the compiled ones, what the first call took. The
report at the end says what each trace has cost, and what its calls take.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import partax


def selu(x: jax.Array, alpha: float = 1.67, scale: float = 1.05) -> jax.Array:
    """The activation, on any shape."""
    return scale * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)


def python_walk(key: jax.Array, steps: int, sigma: Any) -> jax.Array:
    """One walk as a Python loop: in each step one operation after the other is dispatched."""
    position = jnp.zeros(())
    positions = [position]
    for step_key in jax.random.split(key, steps):
        position = position + sigma * jax.random.normal(step_key)
        positions.append(position)
    return jnp.stack(positions)


def scanned_walk(key: jax.Array, steps: int, sigma: Any) -> jax.Array:
    """One walk as a scan: one body, however many steps."""

    def body(position: jax.Array, step_key: jax.Array) -> tuple[jax.Array, jax.Array]:
        position = position + sigma * jax.random.normal(step_key)
        return position, position

    start = jnp.zeros(())
    _, positions = jax.lax.scan(body, start, jax.random.split(key, steps))
    return jnp.concatenate([start[None], positions])


@partax.filter_jit
def walks(key: jax.Array, count: int, steps: int, sigma: Any) -> jax.Array:
    """Many walks at once. `count` and `steps` are plain numbers, so they are static and may be shapes."""
    return jax.vmap(scanned_walk, in_axes=(0, None, None))(jax.random.split(key, count), steps, sigma)


def timed(name: str, run: Callable[[], jax.Array], calls: int) -> jax.Array:
    """Prints what the first call takes, and one of those after it."""
    start = time.perf_counter()
    result = jax.block_until_ready(run())
    first = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(calls):
        jax.block_until_ready(run())
    print(f"  {name:<40} first call {first:8.4f} s, then {(time.perf_counter() - start) / calls * 1e6:10.1f} us")
    return result


def main() -> None:
    """Runs the story."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walks", type=int, default=1000, help="walks at once")
    parser.add_argument("--steps", type=int, default=500, help="steps of a walk")
    parser.add_argument("--quick", action="store_true", help="as small as it makes sense")
    given = parser.parse_args()
    count, steps = (8, 10) if given.quick else (given.walks, given.steps)
    partax.explain()

    print("SELU of a million numbers", flush=True)
    x = jnp.linspace(-3, 3, 1000 if given.quick else 1_000_000)
    fast_selu = partax.filter_jit(selu)
    plain = timed("operation by operation", lambda: selu(x), 5)
    fused = timed("filter_jit: one fused program", lambda: fast_selu(x), 5)
    gradient = partax.filter_jit(jax.grad(lambda x: selu(x).sum()))
    timed("filter_jit of its gradient", lambda: gradient(x), 5)
    assert jnp.allclose(plain, fused, atol=1e-5)  # another program rounds otherwise

    print(f"\na Gaussian random walk of {steps} steps", flush=True)
    key = jax.random.key(0)
    in_python = timed("a Python loop", lambda: python_walk(key, steps, 0.5), 1)
    in_scan = timed("lax.scan", lambda: scanned_walk(key, steps, 0.5), 3)
    unrolled = partax.filter_jit(python_walk)
    in_loop = timed("filter_jit of the Python loop: unrolled", lambda: unrolled(key, steps, 0.5), 3)
    compiled = partax.filter_jit(scanned_walk)
    in_jit = timed("filter_jit of the scan", lambda: compiled(key, steps, 0.5), 20)
    for other in (in_scan, in_loop, in_jit):
        assert jnp.allclose(in_python, other, atol=1e-3)  # 500 additions of an eps of 30 at most

    print(f"\n{count} walks at once, with another width each time", flush=True)
    many = timed("filter_jit of vmap of the scan", lambda: walks(key, count, steps, jnp.asarray(0.5)), 5)
    assert many.shape == (count, steps + 1)
    for sigma in (0.1, 0.2, 0.3):
        walks(key, count, steps, sigma)  # a Python number is static: each is a trace
    for sigma in (0.1, 0.2, 0.3):
        walks(key, count, steps, jnp.asarray(sigma))  # an array is traced: none

    print()
    print(partax.report())


if __name__ == "__main__":
    main()
