"""What training and serving cost on a GPU: how long a step is, and what the GPU itself takes of it.

    python bench/gpu.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

The model has many small arrays, so that a call has much to do on the host. `one loop` is the same steps as one program
of `jax.jit` with a loop in it, which waits for no host: what the GPU takes. The budgets are those of a CPU. Without
a GPU nothing is measured; `JAX_PLATFORMS=cpu` measures the CPU.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial

try:
    import jax
    import jax.numpy as jnp

    import bound
    import partax
    import workloads as work
    from budgets import Measure, Row, as_row, run
    from interleave import Effort, take_turns
    from steps import STEPS
    from workloads import FLOOR, PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

ONE_LOOP = "one loop"
FORMS = (*work.FORMS, STEPS, ONE_LOOP, bound.FREE, bound.BOUND)
DEPTH = 64
IN_A_ROW = 32
"""Steps, each on the result of the last one, with one wait at the end."""


def loops(width: int, rows: int) -> dict[str, Callable[[], None]]:
    """Each makes so many steps."""
    forms, batch = work.train_forms(work.mlp(depth=DEPTH, width=width)), jnp.ones((rows, width))
    chunks = partax.scan_steps(forms[PARTAX].fn, IN_A_ROW)
    flat, (arrays,) = forms[FLOOR].fn, forms[FLOOR].state

    @jax.jit
    def one_loop(arrays: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return jax.lax.fori_loop(0, IN_A_ROW, lambda _, arrays: flat(arrays, batch), arrays)

    def one_by_one(form: str) -> None:
        fn, state = forms[form].fn, forms[form].state
        for _ in range(IN_A_ROW):
            state = (fn(*state, batch),) if form == FLOOR else fn(*state, batch)
        jax.block_until_ready(work.arrays_of(state))

    def together() -> None:
        (result,) = chunks(*forms[PARTAX].state, over=[batch] * IN_A_ROW)
        jax.block_until_ready(work.arrays_of(result))

    return {
        **{form: partial(one_by_one, form) for form in work.FORMS},
        STEPS: together,
        ONE_LOOP: lambda: jax.block_until_ready(one_loop(arrays)) and None,
    }


def training(width: int, rows: int, effort: Effort, name: str, budget: float) -> Row:
    def timed(loop: Callable[[], None]) -> float:
        begin = time.perf_counter()
        loop()
        return (time.perf_counter() - begin) / IN_A_ROW

    measures = {form: partial(timed, loop) for form, loop in loops(width, rows).items()}
    for _ in range(2):  # Compiles, and sees outputs come back as inputs.
        for measure in measures.values():
            measure()
    timings = take_turns(measures, effort.slow_rounds(21))
    return as_row(name, timings, budget, f"x {FLOOR}", "a step")


ROWS: tuple[tuple[str, float, Measure], ...] = (
    *(
        (f"Adam steps, 64 layers {width} wide, batch {rows}", 1.2, partial(training, width, rows))
        for width, rows in ((16, 8), (256, 256), (1024, 1024))
    ),
    ("400 arrays bound, 1 in and 1 out", 0.55, partial(bound.bound, 400)),
)


def main() -> int:
    if jax.default_backend() == "cpu" and os.environ.get("JAX_PLATFORMS") != "cpu":
        print("There is no GPU here: nothing was measured. JAX_PLATFORMS=cpu measures the same on the CPU.")
        return 0
    return run(ROWS, FORMS, FORMS, __doc__.split("\n")[0])


if __name__ == "__main__":
    sys.exit(main())
