"""What it takes to examine a program, over lowering it; and whether that grows with the equations alone.

    python bench/doctor.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

The programs are a Python loop, whose turns are all alike, and random elementwise code, of which nothing repeats. Each
is traced once; what is timed is `partax.doctor`'s reading of it, and jax's lowering of the same program.
"""

from __future__ import annotations

import dataclasses
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

try:
    import jax
    import jax.numpy as jnp

    from budgets import Known, Measure, Row, as_row, run
    from interleave import Effort, take_turns
    from partax._doctor.doctor import diagnosis_of
    from partax._doctor.program import Program, trace_program
    from workloads import PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

LOWER, TEN = "lowering", "ten small"
FORMS = (LOWER, TEN, PARTAX)
EQUATIONS = 100_000


def loop(equations: int) -> Callable[..., Any]:
    """Turns of four equations."""

    def function(w: jax.Array, x: jax.Array) -> jax.Array:
        for _ in range(equations // 4):
            x = jnp.tanh(x @ w) + jnp.sin(x)
        return x

    return function


def random_code(equations: int) -> Callable[..., Any]:
    """As many equations in an order of chance, of arrays of four shapes."""
    chance = random.Random(0)
    operations = (jnp.sin, jnp.cos, jnp.tanh, jnp.exp, jnp.abs, jnp.negative, jnp.square, jnp.floor)
    order = [(chance.choice(operations), chance.randrange(8)) for _ in range(equations)]

    def function(w: jax.Array, x: jax.Array) -> Any:
        values = [w[i:, : i + 1] for i in range(4)] + [x, x + 1, x * 2, w]
        for operation, i in order:
            values[i] = operation(values[i])
        return values

    return function


def traced_code(code: Callable[[int], Callable[..., Any]], equations: int) -> Program:
    arguments = jax.ShapeDtypeStruct((8, 8), jnp.float32), jax.ShapeDtypeStruct((4, 8), jnp.float32)
    return trace_program(jax.jit(code(equations)), arguments, {}, is_sampled=False)


def doctor_seconds(program: Program) -> float:
    program = dataclasses.replace(program)  # without the cached properties
    begin = time.perf_counter()
    diagnosis_of(program, {})
    return time.perf_counter() - begin


def over_lowering(code: Callable[[int], Callable[..., Any]], effort: Effort, name: str, budget: float) -> Row:
    """The seconds of the doctor over those of lowering."""
    equations = EQUATIONS // 10 if effort.quick else EQUATIONS
    program = traced_code(code, equations)

    def lower() -> float:
        jax.clear_caches()
        begin = time.perf_counter()
        program.traced.lower()
        return time.perf_counter() - begin

    doctor_seconds(program)
    measures = {LOWER: lower, PARTAX: partial(doctor_seconds, program)}
    timings = take_turns(measures, 3 if effort.quick else 5)
    return as_row(name, timings, budget, f"x {LOWER}", f"{equations} equations")


def growth(code: Callable[[int], Callable[..., Any]], effort: Effort, name: str, budget: float) -> Row:
    """The seconds for ten times as many equations, over ten times the seconds."""
    equations = EQUATIONS // 10 if effort.quick else EQUATIONS
    small, large = traced_code(code, equations // 10), traced_code(code, equations)

    def ten_small() -> float:
        return sum(doctor_seconds(small) for _ in range(10))

    timings = take_turns({TEN: ten_small, PARTAX: partial(doctor_seconds, large)}, 5)
    return as_row(name, timings, budget, f"x {TEN}", f"{equations} equations")


# Lowering an equation takes 16 µs, and tracing it before that 100 µs.
KNOWN = {
    name: Known(0.4, "each rule reads all equations in Python, 4 µs an equation in all")
    for name in ("a loop", "random code")
}
ROWS: tuple[tuple[str, float, Measure], ...] = (
    ("a loop", 0.1, partial(over_lowering, loop)),
    ("random code", 0.1, partial(over_lowering, random_code)),
    # Ten times as many equations leave the caches of the processor; what is not linear would take ten times as long.
    ("a loop, growth", 2.0, partial(growth, loop)),
    ("random code, growth", 2.0, partial(growth, random_code)),
)


if __name__ == "__main__":
    sys.exit(run(ROWS, FORMS, (), __doc__.split("\n")[0], KNOWN, libraries=()))
