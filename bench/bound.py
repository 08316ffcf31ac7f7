"""What a call costs whose arguments are bound: read, checked and kept once.

    python bench/bound.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

The floor is `jax.jit` on all arrays, in a flat tuple. Beside it: the call with all of its arguments, and for Flax nnx
`nnx.jit_partial`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

try:
    import jax
    import jax.numpy as jnp

    import partax
    from budgets import Known, Measure, Row, as_row, run
    from interleave import Effort, Loop, Timing, repeated
    from nnx import JIT_PARTIAL, idle, loops_of
    from nnx import same_value as first
    from partax import nnx as partax_nnx
    from workloads import FLOOR
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

FREE, BOUND = "all arguments", "bound"
FORMS = (FLOOR, JIT_PARTIAL, FREE, BOUND)


def total(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    return sum(weights, x)


def row(name: str, timings: Mapping[str, Timing], budget: float, form: str, base: str) -> Row:
    return as_row(name, timings, budget, f"x {base}", measured=timings[form].over(timings[base]))


def loops(count: int) -> dict[str, Loop]:
    weights, x = [jnp.full(4, 1.0 + i) for i in range(count)], jnp.ones(4)
    free = partax.filter_jit(total)
    free.clear_cache()
    floor = jax.jit(lambda arrays, x: total(list(arrays), x))
    return {
        FLOOR: repeated(floor, tuple(weights), x, wait_for=first),
        FREE: repeated(free, weights, x, wait_for=first),
        BOUND: repeated(free.bind(weights), x, wait_for=first),
    }


def bound(count: int, effort: Effort, name: str, budget: float) -> Row:
    return row(name, effort.timings(loops(count)), budget, BOUND, FLOOR)


def in_nnx(base: str, effort: Effort, name: str, budget: float) -> Row:
    work = idle(64)
    all_loops = loops_of(work)
    ours = partax_nnx.jit(work.fn).bind(*work.objects())
    measured = {FLOOR: all_loops[FLOOR], JIT_PARTIAL: all_loops[JIT_PARTIAL], FREE: all_loops["partax"]}
    measured[BOUND] = repeated(ours, work.x, wait_for=first)
    return row(name, effort.timings(measured), budget, BOUND, base)


def adam_step(params: list[jax.Array], mean: list[jax.Array], squares: list[jax.Array]) -> Any:
    mean = [0.9 * m + 0.1 * p for m, p in zip(mean, params, strict=True)]
    squares = [0.99 * s + 0.01 * p * p for s, p in zip(squares, params, strict=True)]
    return [p - 1e-3 * m / (s**0.5 + 1e-8) for p, m, s in zip(params, mean, squares, strict=True)], mean, squares


def nothing_bound(effort: Effort, name: str, budget: float) -> Row:
    state = [[jnp.full(16, 1.0 + i) for i in range(130)] for _ in range(3)]
    step = partax.filter_jit(adam_step)

    def loop_of(fn: Callable[..., Any]) -> Loop:
        def loop(count: int) -> None:
            carry = state
            for _ in range(count):
                carry = fn(*carry)
            jax.block_until_ready(carry)

        return loop

    timings = effort.timings({FREE: loop_of(step), BOUND: loop_of(step.bind())})
    return row(name, timings, budget, BOUND, FREE)


SOME, MANY = "400 arrays bound, 1 in and 1 out", "10,000 arrays bound, 1 in and 1 out"
OF_XLA = "the rest is XLA's run of the program, which reads each array"
ONE = "1 array bound, 1 in and 1 out"
KNOWN = {
    ONE: Known(
        1.1,
        "of its 39,000 instructions, 0.93 of the floor's, XLA's run has 22,000 and jaxlib's way there and back 6,200; "
        "jax's types and settings are asked for in 2,900, and partax has 2,400",
    ),
    SOME: Known(0.6, OF_XLA),
    MANY: Known(0.6, OF_XLA),
}
ROWS: tuple[tuple[str, float, Measure], ...] = (
    (ONE, 0.9, partial(bound, 1)),
    (SOME, 0.55, partial(bound, 400)),
    (MANY, 0.45, partial(bound, 10_000)),
    ("nnx, 64 layers, a call that does nothing", 0.6, partial(in_nnx, FLOOR)),
    ("the same, over nnx.jit_partial", 0.15, partial(in_nnx, JIT_PARTIAL)),
    ("an Adam step of 390 arrays, nothing bound", 1.0, nothing_bound),
)


if __name__ == "__main__":
    sys.exit(run(ROWS, FORMS, FORMS, "Measure calls with bound arguments.", known=KNOWN))
