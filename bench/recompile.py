"""What not recompiling costs: re-created callables, explanations, and many static keys, measured in turns.

    python bench/recompile.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

Each row compares two or more ways of making the same call. The budgets are for the CPU.
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import rich.box
    import rich.console
    import rich.table

    import partax
    import provenance
    from interleave import Effort, Loop, Timing
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

JAX_CACHE = 8192  # entries of jax's process-wide caches of fast paths


@dataclass(frozen=True)
class Row:
    """One comparison."""

    work: str
    seconds: dict[str, float]
    """Median per contender."""
    spread: dict[str, float]
    measured: float
    unit: str
    budget: float | None

    @property
    def met(self) -> bool:
        return self.budget is None or self.measured <= self.budget


def over(work: str, timings: dict[str, Timing], name: str, plain: str, budget: float | None) -> Row:
    """By how many microseconds one contender exceeds another."""
    excess = (timings[name].median - timings[plain].median) * 1e6
    return _row(work, timings, excess, "µs over", budget)


def ratio(work: str, timings: dict[str, Timing], name: str, plain: str, budget: float | None) -> Row:
    return _row(work, timings, timings[name].over(timings[plain]), "x", budget)


def _row(work: str, timings: dict[str, Timing], measured: float, unit: str, budget: float | None) -> Row:
    seconds = {name: timing.median for name, timing in timings.items()}
    return Row(work, seconds, {name: timing.spread for name, timing in timings.items()}, measured, unit, budget)


def run(effort: Effort, calls: dict[str, Callable[[], Any]]) -> dict[str, Timing]:
    return effort.timings({name: repeated(call) for name, call in calls.items()})


def repeated(call: Callable[[], Any]) -> Loop:
    """Makes the call that many times; every contender pays for one Python function around it."""

    def loop(count: int) -> None:
        out = None
        for _ in repeat(None, count):
            out = call()
        jax.block_until_ready(out)

    return loop


def scaled(scale: float) -> Any:
    def fun(x: Any, shift: float = 1.0) -> Any:
        return x * scale + shift

    return fun


CALLABLES: dict[str, Callable[[], Any]] = {
    "function with a closure": lambda: scaled(2.5),
    "functools.partial of it": lambda: functools.partial(scaled(2.5), shift=2.0),
    "jax.vmap of it": lambda: jax.vmap(scaled(2.5)),
    "jax.jit of it": lambda: jax.jit(scaled(2.5)),
    "filter_jit of it": lambda: partax.filter_jit(scaled(2.5)),
}


def over_same_object(effort: Effort, work: str, budget: float, make: Callable[[], Any]) -> Row:
    """A hit with an equal object over one with the same object, without the time to make it."""
    step = partax.filter_jit(lambda fun, x: x + 1)  # `fun` is a key and no work
    x = jnp.ones(3)
    same = make()
    others = cycle([make() for _ in range(100)])
    step(same, x)
    timings = run(effort, {"the same object": lambda: step(same, x), "re-created": lambda: step(next(others), x)})
    return over(work, timings, "re-created", "the same object", budget)


def over_same_wrapper(effort: Effort, work: str, budget: float | None) -> Row:
    x = jnp.ones(3)
    kept = partax.filter_jit(lambda x: x + 1)
    calls = {
        "one wrapper": lambda: kept(x),
        "a lambda and its wrapper for each call": lambda: partax.filter_jit(lambda x: x + 1)(x),
    }
    return over(work, run(effort, calls), "a lambda and its wrapper for each call", "one wrapper", budget)


def by_identity(effort: Effort, work: str, budget: float) -> Row:
    """A hit by identity, with and without comparison by structure."""
    x, fun = jnp.ones(3), scaled(2.5)
    calls = {}
    for how in ("structure", "identity"):
        step = partax.filter_jit(lambda fun, x: fun(x), reuse_equal_functions=how == "structure")
        calls[how] = functools.partial(step, fun, x)
    return ratio(work, run(effort, calls), "structure", "identity", budget)


def explained(effort: Effort, work: str, budget: float) -> Row | None:
    """A hit with explanations off and on."""
    explain = getattr(partax, "explain", None)
    if explain is None:
        return None
    step, x = partax.filter_jit(lambda fun, x: fun(x)), jnp.ones(3)
    fun = scaled(2.5)

    def with_explanations(count: int) -> None:
        with explain():
            off(count)

    off = repeated(lambda: step(fun, x))
    loops: dict[str, Loop] = {"off": off, "on": with_explanations}
    timings = effort.timings(loops)
    return ratio(work, timings, "on", "off", budget)


def compiled(effort: Effort, work: str, budget: float) -> Row:
    step, x = partax.filter_jit(lambda x, n: x * n), jnp.ones(3)
    program = step.lower(x, 2).compile()
    timings = run(effort, {"filter_jit": lambda: step(x, 2), "compiled": lambda: program(x, 2)})
    return ratio(work, timings, "compiled", "filter_jit", budget)


def cycled_keys(effort: Effort, work: str, budget: float, keys: int) -> Row:
    """Beside as many functions of jax.jit: that many programs do not fit into the processor's caches."""
    x = jnp.ones(3)
    step, theirs = partax.filter_jit(lambda x, n: x + 1), [jax.jit(_adding(n)) for n in range(keys)]
    for n in range(keys):
        step(x, n)
        theirs[n](x)
    numbers, functions = cycle(range(keys)), cycle(theirs)
    ours, floor = f"{keys:,} keys", f"{keys:,} functions of jax.jit"
    timings = run(effort, {floor: lambda: next(functions)(x), ours: lambda: step(x, next(numbers))})
    return over(work, timings, ours, floor, budget)


def hits_among_many(effort: Effort, work: str, budget: float, keys: int, wrappers: int) -> Row:
    """What other functions' hits cost once jax's caches have seen more than they hold."""
    x = jnp.ones(3)
    theirs, ours = jax.jit(lambda x: x + 1), partax.filter_jit(lambda x: x + 1)
    loops = {"jax.jit": repeated(lambda: theirs(x)), "partax": repeated(lambda: ours(x))}
    before = effort.timings(loops)
    many = partax.filter_jit(lambda x, n: x + 1, cache_size=max(1, keys))
    for n in range(keys):
        many.eval_shape(x, n)
        if n % 64 == 0:
            many(x, n)
    kept = [partax.filter_jit(_adding(n)) for n in range(wrappers)]
    for wrapper in kept:
        wrapper.eval_shape(x)
    after = effort.timings(loops)
    timings = {
        f"{name}, {when}": times[name] for when, times in (("before", before), ("after", after)) for name in times
    }
    return ratio(work, timings, "partax, after", "partax, before", budget)


def _adding(n: int) -> Any:
    return lambda x: x + n


def rows(quick: bool) -> list[tuple[str, Callable[[Effort], Row | None]]]:
    many = 1000 if quick else JAX_CACHE + 1808
    chosen: list[tuple[str, Callable[[Effort], Row | None]]] = []

    def add(work: str, measure: Callable[..., Row | None], *args: Any) -> None:
        chosen.append((work, lambda effort: measure(effort, work, *args)))

    add("a hit, explanations on", explained, 2.0)
    add("a hit on one function, by structure over by identity", by_identity, 1.05)
    for name, make in CALLABLES.items():
        add(f"{name}, re-created for each call", over_same_object, 3.0, make)
    add("a wrapper of a lambda, re-created for each call", over_same_wrapper, None)
    add("a compiled program", compiled, 1.15)
    for keys in (1, 10, 1000):
        add(f"{keys:,} static keys in turn", cycled_keys, 2.0, keys)
    add(f"others' hits among {many:,} static keys of one wrapper", hits_among_many, 1.15, many, 0)
    add(f"others' hits among {many:,} wrappers", hits_among_many, 1.15, 0, many)
    return chosen


def readable(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} µs"


def as_table(measured: list[Row]) -> rich.table.Table:
    title = f"jax {jax.__version__}, Python {platform.python_version()}, {jax.devices()[0].platform}"
    table = rich.table.Table(title=title, box=rich.box.SIMPLE)
    for column in ("work", "seconds a call", "measured", "budget", "spread", "met"):
        table.add_column(column)
    for row in measured:
        seconds = "\n".join(f"{readable(value)}  {name}" for name, value in row.seconds.items())
        budget = "-" if row.budget is None else f"≤ {row.budget:g} {row.unit}"
        spread, met = f"{max(row.spread.values()):.0%}", "[green]yes" if row.met else "[red]no"
        table.add_row(row.work, seconds, f"{row.measured:.2f} {row.unit}", budget, spread, met)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what it costs not to recompile.")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, and fewer keys in the large rows")
    parser.add_argument("--rows", metavar="SUBSTRING", default="", help="only rows that contain it")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the results here")
    parser.add_argument("--check", action="store_true", help="exit 1 if a budget is missed")
    options = parser.parse_args()
    chosen = [row for row in rows(options.quick) if options.rows.lower() in row[0].lower()]
    if not chosen:
        parser.error(f"no row contains {options.rows!r}")

    jax.config.update("jax_enable_compilation_cache", False)
    effort = Effort(options.quick)
    measured = [row for _, measure in chosen if (row := measure(effort)) is not None]
    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=160)
    console.print(as_table(measured))
    if options.json:
        head = provenance.of((), quick=options.quick)
        result = {**head, "rows": [asdict(row) | {"met": row.met} for row in measured]}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    missed = [row.work for row in measured if not row.met]
    if missed:
        console.print(f"{len(missed)} of {len(measured)} budgets missed: " + "; ".join(missed))
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
