"""What filtered transformations add to the trace of a train step, over those of jax on the same trees of arrays.

    python bench/tracing.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

The step is of 16 layers, each a dictionary of arrays, which jax's own transformations take as they are: `jax.vmap` over
the batch, `jax.value_and_grad`, or `jax.lax.scan` over steps; one of them is replaced by partax's or Equinox's. What is
timed is `jax.jit(step).trace(...)` of a new function each time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import partax
    from budgets import Measure, Row, as_row, run
    from interleave import Effort, take_turns
    from workloads import EQUINOX, PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

JAX = "jax"
FORMS = (JAX, PARTAX, EQUINOX)
LAYERS, WIDTH, BATCH, STEPS = 16, 8, 4, 3


class Transformations(NamedTuple):
    """The three that a train step uses."""

    vmap: Callable[..., Any] = jax.vmap
    value_and_grad: Callable[..., Any] = jax.value_and_grad
    scan: Callable[..., Any] = jax.lax.scan


def model(layers: Any, x: jax.Array) -> jax.Array:
    for layer in layers:
        x = jnp.tanh(layer["weight"] @ x + layer["bias"])
    return x


def step_by(of: Transformations) -> Callable[..., Any]:
    """Some steps down the gradient of a batch's loss."""

    def loss(layers: Any, x: jax.Array) -> jax.Array:
        return jnp.mean(of.vmap(model, in_axes=(None, 0))(layers, x) ** 2)

    def update(layers: Any, x: jax.Array) -> Any:
        value, gradient = of.value_and_grad(loss)(layers, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, layers, gradient), value

    def step(layers: Any, xs: jax.Array) -> Any:
        return of.scan(update, layers, xs)

    return step


def traced(of: dict[str, Transformations], effort: Effort, name: str, budget: float) -> Row:
    keys = jax.random.split(jax.random.key(0), LAYERS)
    layers = [{"weight": jax.random.normal(key, (WIDTH, WIDTH)), "bias": jnp.zeros(WIDTH)} for key in keys]
    xs = jnp.ones((STEPS, BATCH, WIDTH))
    programs: dict[str, Any] = {}

    def fresh(form: str) -> float:
        step = jax.jit(step_by(of[form]))
        begin = time.perf_counter()
        made = step.trace(layers, xs)
        seconds = time.perf_counter() - begin
        programs[form] = made
        return seconds

    for form in of:
        fresh(form)
    timings = take_turns({form: partial(fresh, form) for form in of}, 11 if effort.quick else 61)
    results = {form: jax.tree.leaves(made.lower().compile()(layers, xs)) for form, made in programs.items()}
    if any(a.tobytes() != b.tobytes() for a, b in zip(results[JAX], results[PARTAX], strict=True)):
        raise RuntimeError(f"{name}: the two steps differ")
    return as_row(name, timings, budget, f"x {JAX}", "a trace")


def replacing(name: str, by_partax: Callable[..., Any], by_equinox: Callable[..., Any] | None = None) -> Measure:
    """Measures steps in which one transformation is another library's."""
    of = {JAX: Transformations(), PARTAX: Transformations()._replace(**{name: by_partax})}
    if by_equinox is not None:
        of[EQUINOX] = Transformations()._replace(**{name: by_equinox})
    return partial(traced, of)


ROWS: tuple[tuple[str, float, Measure], ...] = (
    ("vmap", 1.05, replacing("vmap", partax.filter_vmap, eqx.filter_vmap)),
    ("grad", 1.05, replacing("value_and_grad", partax.filter_value_and_grad, eqx.filter_value_and_grad)),
    ("scan", 1.05, replacing("scan", partax.filter_scan)),
)


if __name__ == "__main__":
    sys.exit(run(ROWS, FORMS, FORMS, __doc__.split("\n")[0]))
