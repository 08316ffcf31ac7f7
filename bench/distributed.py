"""Training on one device, on eight, and on two processes of four: what a call costs, and that the result is the same.

It starts the processes itself. What the budget is for is dispatch: from the call until it returns, as a multiple of
what `jax.jit` takes on a flat tuple of the same arrays. All devices are the CPU's, so the time of a step says what the
collective operations cost on this machine, not what more devices would bring.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

try:
    import numpy as np
    import rich.box
    import rich.console
    import rich.table

    import budgets
    from budgets import Known, as_row, readable
    from interleave import Effort, Timing
    from process_groups import run_processes
    from workloads import FORMS, PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

WORKER = Path(__file__).with_name("sharded_steps.py")
TIMEOUT = 1200.0
# Sums over the batch and contractions are sums of partial sums on several devices: the last bits differ, by up to this
# after ten steps of 1e-3.
TOLERANCE = 1e-5
OF_MODULES = "a step reads modules and makes new ones; bench/families.py has what that alone takes"


@dataclass(frozen=True)
class Place:
    """Where to train."""

    processes: int
    devices: int
    """Of each process."""
    strategy: str


@dataclass(frozen=True)
class Trained:
    """What all processes have seen, by form."""

    steps: dict[str, Timing]
    dispatch: dict[str, Timing]
    traces: dict[str, int]
    collectives: dict[str, int]
    values: dict[str, list[np.ndarray]]


PLACES = {
    "1 device": Place(1, 1, "data"),
    "8 devices, data parallel": Place(1, 8, "data"),
    "8 devices, tensor parallel": Place(1, 8, "model"),
    "2 processes of 4, data parallel": Place(2, 4, "data"),
    "2 processes of 4, tensor parallel": Place(2, 4, "model"),
}


@functools.cache
def trained(place: Place, effort: Effort) -> Trained:
    steps, rounds, calls = (3, 4, 3) if effort.quick else (10, 30, 6)
    with tempfile.TemporaryDirectory() as directory:
        arguments = [directory, place.strategy, *map(str, (steps, rounds, calls))]
        ended = run_processes(WORKER, arguments, place.processes, place.devices, TIMEOUT)
        for one in ended:
            if one.returncode:
                how = "was killed, as it hung" if one.killed else f"ended with {one.returncode}"
                raise RuntimeError(f"process {one.rank} of {place} {how}; its output:\n{one.output[-4000:]}")
        ranks = range(place.processes)
        seen = [json.loads((Path(directory) / f"{rank}.json").read_text()) for rank in ranks]
        values = {form: [_load(Path(directory) / f"{form}{rank}.npz") for rank in ranks] for form in FORMS}

    def timings(what: str) -> dict[str, Timing]:
        return {form: Timing(tuple(second for one in seen for second in one[what][form])) for form in FORMS}

    return Trained(
        timings("steps"),
        timings("dispatch"),
        {form: max(one["traces"][form] for one in seen) for form in FORMS},
        seen[0]["collectives"],
        # Each process has NaN where it has nothing.
        {form: [np.fmax.reduce(parts) for parts in zip(*values[form], strict=True)] for form in FORMS},
    )


def _load(file: Path) -> list[np.ndarray]:
    with np.load(file) as arrays:
        return list(arrays.values())


def difference(some: list[np.ndarray], others: list[np.ndarray]) -> float:
    """The largest of all parameters; NaN if any is missing."""
    return max(float(np.abs(a - b).max()) for a, b in zip(some, others, strict=True))


def dispatch(effort: Effort, name: str, budget: float) -> budgets.Row:
    return as_row(name, trained(PLACES[name], effort).dispatch, budget, "x floor", "dispatch")


def table_of_steps(effort: Effort, names: list[str]) -> rich.table.Table:
    """The times of whole steps, and what else was to be seen."""
    table = rich.table.Table(title="a step until it has ended; all forms do the same arithmetic", box=rich.box.SIMPLE)
    for column in ("where", *FORMS, "traces", "partax - floor", "partax - 1 device", "collectives"):
        table.add_column(column, justify="left" if column in ("where", "collectives") else "right")
    alone = trained(PLACES["1 device"], effort).values[PARTAX]
    for name in names:
        one = trained(PLACES[name], effort)
        table.add_row(
            name,
            *(readable(one.steps[form].median) for form in FORMS),
            str(one.traces[PARTAX]),
            f"{difference(one.values[PARTAX], one.values[FORMS[0]]):.1g}",
            f"{difference(one.values[PARTAX], alone):.1g}",
            ", ".join(f"{count} {kind}" for kind, count in one.collectives.items()) or "none",
        )
    return table


def faults(effort: Effort, names: list[str]) -> list[str]:
    """What must not be, whatever the times are."""
    alone = trained(PLACES["1 device"], effort).values[PARTAX]
    found: list[str] = []
    for name in names:
        one = trained(PLACES[name], effort)
        if one.traces[PARTAX] != 1:
            found.append(f"{name}: {one.traces[PARTAX]} traces, expected 1")
        if not difference(one.values[PARTAX], alone) <= TOLERANCE:
            found.append(f"{name}: parameters differ from those of one device")
        if set(one.collectives) - {"all-reduce"}:
            found.append(f"{name}: collectives {one.collectives}, expected sums only")
    return found


def main() -> int:
    done: dict[str, Effort] = {}

    def measure(effort: Effort, name: str, budget: float) -> budgets.Row:
        done[name] = effort
        return dispatch(effort, name, budget)

    known = {name: Known(1.15, OF_MODULES) for name in PLACES}
    status = budgets.run([(name, 1.05, measure) for name in PLACES], FORMS, FORMS, __doc__ or "", known)
    effort, names = next(iter(done.values())), list(done)
    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=160)
    console.print(table_of_steps(effort, names))
    for fault in faults(effort, names):
        console.print(f"[red]{fault}")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
