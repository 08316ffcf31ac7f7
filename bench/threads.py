"""What threads cost: calls a second of one function from 1, 2 and 4 threads, and of `jax.jit`, in turns.

    python bench/threads.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

Each row runs the same number of calls in the same number of threads with either, in turns. The floor is
`jax.jit` on a flat tuple of the same arrays. On the small work the time is Python's, which the GIL
hands from thread to thread; on the large one XLA's, which computes without the GIL. On a Python without its GIL there
are rows of what a second thread gains: the time of a call in two threads, each with a function of its own, over that in
one, which is 0.5 at best. What one thread costs more than with the GIL is a row over the same row of a Python that has
it, best of the same version, compiled alike: jax itself takes longer there.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

try:
    import jax
    import jax.numpy as jnp

    import partax
    import workloads as work
    from budgets import Measure, Row, as_row, run
    from interleave import Effort, Timing, take_turns
    from workloads import FLOOR, PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

OVER_FLOOR = f"x {FLOOR}"
BUDGET = 1.06  # as for one thread, in bench/dispatch.py
OVER_ONE = "of one thread"
HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()


class Pool:
    """Threads that wait, so that starting them is not timed."""

    def __init__(self, size: int):
        self._start = threading.Barrier(size + 1)
        self._end = threading.Barrier(size + 1)
        self._work: Callable[[], None] | None = None
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while True:
            self._start.wait()
            if self._work is None:
                return
            self._work()
            self._end.wait()

    def seconds(self, each: Callable[[], None]) -> float:
        """Until every thread has run it once."""
        self._work = each
        begin = time.perf_counter()
        self._start.wait()
        self._end.wait()
        return time.perf_counter() - begin

    def close(self) -> None:
        self._work = None
        self._start.wait()
        for thread in self._threads:
            thread.join()


def calls_a_second(name: str, timings: dict[str, Timing], budget: float) -> Row:
    rates = ", ".join(f"{form} {1 / timing.median:,.0f}" for form, timing in timings.items())
    return as_row(name, timings, budget, OVER_FLOOR, f"calls a second: {rates}")


def in_threads(effort: Effort, forms: dict[str, tuple[Any, ...]], threads: int, calls: int) -> dict[str, Timing]:
    """Seconds per call, all threads together."""
    pool = Pool(threads)

    def measure(fn: Any, args: tuple[Any, ...]) -> Callable[[], float]:
        def each() -> None:
            out = None
            for _ in repeat(None, calls):
                out = fn(*args)
            jax.block_until_ready(out)

        each()
        return lambda: pool.seconds(each) / (calls * threads)

    try:
        rounds = 15 if effort.quick else 61
        return take_turns({form: measure(fn, args) for form, (fn, *args) in forms.items()}, rounds)
    finally:
        pool.close()


def small(effort: Effort, name: str, budget: float, *, threads: int) -> Row:
    x = jnp.ones(())
    forms = {FLOOR: (jax.jit(lambda x: x + 1), x), PARTAX: (partax.filter_jit(lambda x: x + 1), x)}
    return calls_a_second(name, in_threads(effort, forms, threads, 400 if effort.quick else 1000), budget)


def model(effort: Effort, name: str, budget: float, *, threads: int) -> Row:
    four = work.four_forms(lambda _: work.forward, work.mlp(depth=8, width=32))
    forms = {form: (four[form].fn, *four[form].state, jnp.ones(32)) for form in (FLOOR, PARTAX)}
    return calls_a_second(name, in_threads(effort, forms, threads, 200 if effort.quick else 500), budget)


def large(effort: Effort, name: str, budget: float, *, threads: int) -> Row:
    def product(x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ x).sum()

    x = jnp.ones((384, 384))
    forms = {FLOOR: (jax.jit(product), x), PARTAX: (partax.filter_jit(product), x)}
    return calls_a_second(name, in_threads(effort, forms, threads, 4 if effort.quick else 10), budget)


def own_functions(arrays: int) -> dict[str, list[Callable[[], Any]]]:
    """Calls of two functions each, which no two threads share, with so many arrays in and out."""

    def flat(*leaves: jax.Array) -> list[jax.Array]:
        return [leaf + 1 for leaf in leaves]

    leaves = [jnp.ones(2) for _ in range(arrays)]
    tree = {
        str(i): {"w": pair[0], "rest": [pair[1], "s"]}
        for i, pair in enumerate(zip(leaves[::2], leaves[1::2], strict=True))
    }
    return {
        FLOOR: [partial(jax.jit(lambda *leaves: flat(*leaves)), *leaves) for _ in range(2)],
        PARTAX: [
            partial(partax.filter_jit(lambda tree: flat(*jax.tree.leaves(partax.filter(tree, partax.is_array)))), tree)
            for _ in range(2)
        ],
    }


def first_thread(effort: Effort, name: str, budget: float, *, arrays: int) -> Row:
    """To be compared with the same row on the other build of Python."""
    calls = (10_000 if effort.quick else 25_000) // arrays
    forms = {form: (functions[0],) for form, functions in own_functions(arrays).items()}
    return calls_a_second(name, in_threads(effort, forms, 1, calls), budget)


def second_thread(effort: Effort, name: str, budget: float, *, arrays: int) -> Row:
    calls = (20_000 if effort.quick else 60_000) // arrays
    forms = own_functions(arrays)
    pools = {1: Pool(1), 2: Pool(2)}

    def measure(functions: list[Callable[[], Any]], threads: int) -> Callable[[], float]:
        def each() -> None:
            with lock:
                fn = own.pop()
            out = None
            for _ in repeat(None, calls):
                out = fn()
            jax.block_until_ready(out)

        lock = threading.Lock()
        own: list[Callable[[], Any]] = []

        def seconds() -> float:
            own[:] = functions[:threads]
            return pools[threads].seconds(each) / (calls * threads)

        seconds()
        return seconds

    try:
        takers = {f"{form}, {n}": measure(fns, n) for form, fns in forms.items() for n in (1, 2)}
        timings = take_turns(takers, 15 if effort.quick else 61)
    finally:
        for pool in pools.values():
            pool.close()
    rates = ", ".join(f"{form} {1 / timing.median:,.0f}" for form, timing in timings.items())
    return as_row(
        name,
        {form: timings[f"{form}, 2"] for form in forms},
        budget,
        OVER_ONE,
        f"calls a second by threads: {rates}",
        measured=timings[f"{PARTAX}, 2"].over(timings[f"{PARTAX}, 1"]),
    )


KINDS: dict[str, Callable[..., Row]] = {
    "one array, x + 1": small,
    "forward, 8-layer MLP, width 32 (19 arrays)": model,
    "product of 384 x 384 matrices": large,
}
ROWS: list[tuple[str, float, Measure]] = [
    (f"{kind}, {threads} thread{'s' if threads > 1 else ''}", BUDGET, partial(measure, threads=threads))
    for kind, measure in KINDS.items()
    for threads in (1, 2, 4)
]
ROWS += [
    (f"{arrays} arrays in and out, own function, 1 thread", BUDGET, partial(first_thread, arrays=arrays))
    for arrays in (50, 400)
]
if not HAS_GIL:
    ROWS += [
        (f"{arrays} arrays in and out, own functions, 2 threads", 1 / 1.3, partial(second_thread, arrays=arrays))
        for arrays in (50, 400)
    ]


if __name__ == "__main__":
    sys.exit(run(ROWS, (FLOOR, PARTAX), (PARTAX,), __doc__.splitlines()[0]))
