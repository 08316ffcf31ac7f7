"""What a model of 64 equal layers takes to compile: one after the other in a Python loop, and by `partax.scan_layers`.

    python bench/layers.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

What is timed is the way from a train step to its compiled program: trace, lower and compile. The programs are compared:
the same values and updates, but for rounding. The loop takes most of a minute each time.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np

    import partax
    from budgets import Measure, Row, as_row, run
    from interleave import Effort, take_turns
    from workloads import PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

LOOP = "loop"
LIST = "scan_layers of a list"
FORMS = (LOOP, LIST, PARTAX)
DEPTH, WIDTH = 64, 16
# One program adds in another order than the other: float32, relative to the largest gradient.
TOLERANCE = 1e-4


class Block(eqx.Module):
    """A residual layer behind a norm, as of a transformer."""

    norm: eqx.nn.LayerNorm
    linear: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        self.norm = eqx.nn.LayerNorm(WIDTH)
        self.linear = eqx.nn.Linear(WIDTH, WIDTH, key=key)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x + jnp.tanh(self.linear(self.norm(x))) / DEPTH


def in_a_loop(layers: Sequence[Block], x: jax.Array) -> jax.Array:
    for layer in layers:
        x = layer(x)
    return x


def step_of(model: Callable[[Any, jax.Array], jax.Array]) -> Callable[[Any, jax.Array], Any]:
    """The loss of a batch and one step down its gradient."""

    def loss(layers: Any, x: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(partial(model, layers))(x) ** 2)

    def step(layers: Any, x: jax.Array) -> Any:
        value, gradient = partax.filter_value_and_grad(loss)(layers, x)
        return value, partax.apply_updates(layers, jax.tree.map(lambda g: -0.1 * g, gradient))

    return step


def forms() -> dict[str, tuple[Callable[[Any, jax.Array], jax.Array], Any]]:
    """A model and its layers as it takes them."""
    layers = [Block(key) for key in jax.random.split(jax.random.key(0), DEPTH)]
    return {
        LOOP: (in_a_loop, layers),
        LIST: (partax.scan_layers, layers),
        PARTAX: (partax.scan_layers, partax.tree.stack(layers)),
    }


def largest_difference(one: Any, other: Any) -> float:
    """Of two trees of arrays, relative to the largest number."""
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    pairs = [pair for pair in pairs if eqx.is_array(pair[0])]
    return max(float(np.max(np.abs(a - b)) / max(1.0, float(np.max(np.abs(a))))) for a, b in pairs)


def compile_time(effort: Effort, name: str, budget: float) -> Row:
    x = jax.random.normal(jax.random.key(1), (8, WIDTH))
    made = forms()
    results: dict[str, Any] = {}

    def fresh(form: str) -> float:
        model, layers = made[form]
        jax.clear_caches()
        gc.collect()
        step = partax.filter_jit(step_of(model))
        begin = time.perf_counter()
        compiled = step.lower(layers, x).compile()
        seconds = time.perf_counter() - begin
        results[form] = compiled(layers, x)
        return seconds

    fresh(PARTAX)  # What is loaded or made once per process belongs to nobody.
    timings = take_turns({form: partial(fresh, form) for form in made}, 1 if effort.quick else 5)
    value, updated = results[PARTAX]
    results[PARTAX] = value, list(partax.tree.unstack(updated))
    for form in (LIST, PARTAX):
        if not (difference := largest_difference(results[LOOP], results[form])) <= TOLERANCE:
            raise RuntimeError(f"{form} differs from {LOOP} by {difference}")
    return as_row(name, timings, budget, f"x {LOOP}", "trace + lower + compile")


ROWS: tuple[tuple[str, float, Measure], ...] = ((f"train step of {DEPTH} layers", 0.15, compile_time),)


if __name__ == "__main__":
    sys.exit(run(ROWS, FORMS, FORMS, "Measure what a model of many layers takes to compile."))
