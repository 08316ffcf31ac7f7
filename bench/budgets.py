"""Budgets as rows of a table: how they are measured from timings, printed, written as JSON and checked."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

try:
    import jax
    import rich.box
    import rich.console
    import rich.table
    import tqdm

    import provenance
    from interleave import Effort, Timing
    from workloads import PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')


@dataclass(frozen=True)
class Known:
    """A budget that is missed: how far at most, and why."""

    limit: float
    reason: str


OF_VARIABLES = "each array is in a Variable, an object with a dictionary of its own, which a call reads or makes"
"""Why trees of Flax take longer."""


@dataclass(frozen=True)
class Row:
    """One measured line of the budgets table."""

    work: str
    seconds: dict[str, float]
    """Median per form; what is timed is in `quantity`."""
    fastest: dict[str, float]
    spread: dict[str, float]
    """Distance between the quartiles over the median."""
    quantity: str
    measured: float
    budget: float
    unit: str
    """Of `measured` and `budget`."""
    known: Known | None = None
    """Why the budget is missed, if that is known."""

    @property
    def met(self) -> bool:
        return self.measured <= self.budget

    @property
    def held(self) -> bool:
        """Whether it is met, or missed by no more than is known."""
        return self.met or (self.known is not None and self.measured <= self.known.limit)

    @property
    def base(self) -> str | None:
        """The form that the budget is a multiple of, if it is one."""
        return self.unit.removeprefix("x ") if self.unit.startswith("x ") else None


Measure = Callable[[Effort, str, float], Row]


def as_row(
    work: str,
    timings: Mapping[str, Timing],
    budget: float,
    unit: str,
    quantity: str = "a call",
    *,
    measured: float | None = None,
) -> Row:
    """A row whose unit is ms, µs, or `x` and the form that partax is compared with; else give what was measured."""
    if measured is not None:
        pass
    elif unit.startswith("x "):
        measured = timings[PARTAX].over(timings[unit.removeprefix("x ")])
    else:
        measured = timings[PARTAX].median * {"ms": 1e3, "µs": 1e6}[unit]
    return Row(
        work=work,
        seconds={name: timing.median for name, timing in timings.items()},
        fastest={name: timing.fastest for name, timing in timings.items()},
        spread={name: timing.spread for name, timing in timings.items()},
        quantity=quantity,
        measured=measured,
        budget=budget,
        unit=unit,
    )


def readable(seconds: float) -> str:
    if abs(seconds) < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def as_table(
    rows: Sequence[Row], forms: Sequence[str], ratios_of: Sequence[str], libraries: Sequence[str]
) -> rich.table.Table:
    """The rows; the forms of `ratios_of` also as multiples of what a row's budget is a multiple of."""
    forms = [form for form in forms if any(form in row.seconds for row in rows)]
    title = [f"{library} {version}" for library, version in provenance.versions(("jax", *libraries)).items()]
    title += [f"Python {platform.python_version()}", jax.devices()[0].platform]
    table = rich.table.Table(title=", ".join(title), box=rich.box.SIMPLE)
    table.add_column("work", min_width=24)
    for form in forms:
        table.add_column(form, justify="right")
    table.add_column("partax measured", justify="right")
    table.add_column("budget", justify="right")
    table.add_column("spread", justify="right")
    table.add_column("met")
    for row in rows:
        cells = []
        for form in forms:
            cell = readable(row.seconds[form]) if form in row.seconds else "-"
            if row.base is not None and form in row.seconds and form in ratios_of and form != row.base:
                cell += f"\n{row.seconds[form] / row.seconds[row.base]:.2f} x"
            cells.append(cell)
        work = row.work if row.quantity == "a call" else f"{row.work}\n({row.quantity})"
        met = "[green]yes" if row.met else f"no, ≤ {row.known.limit:g}" if row.held and row.known else "[red]no"
        digits = 2 if row.base is None else 3
        measured, budget = f"{row.measured:.{digits}f} {row.unit}", f"≤ {row.budget:g} {row.unit}"
        # The noisier of the two that are compared: a ratio is no better known than this.
        spread = max([row.spread[form] for form in (row.base, PARTAX) if form in row.spread] or row.spread.values())
        table.add_row(work, *cells, measured, budget, f"{spread:.0%}", met)
    return table


def as_json(rows: Sequence[Row], quick: bool, libraries: Sequence[str]) -> dict[str, Any]:
    return {
        **provenance.of(libraries, quick=quick),
        "rows": [asdict(row) | {"met": row.met, "held": row.held} for row in rows],
    }


def measure_again(name: str, quick: bool) -> Row:
    """A row of this benchmark as a process of its own measures it.

    Some processes, one in 25, have another speed than the rest for as long as they live, whatever arrays they are
    given: calls on 400 arrays take partax 5 to 10% longer there, in jax's part of the call, and `jax.jit` 0 to 6%.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.json")
        command = [sys.executable, sys.argv[0], "--rows", name, "--json", str(file)]
        subprocess.run([*command, "--quick"] if quick else command, stdout=subprocess.DEVNULL, check=True)
        (found,) = (row for row in json.loads(file.read_text())["rows"] if row["work"] == name)
    return Row(**{field.name: found[field.name] for field in fields(Row)})


def run(
    rows: Sequence[tuple[str, float, Measure]],
    forms: Sequence[str],
    ratios_of: Sequence[str],
    description: str,
    known: Mapping[str, Known] = MappingProxyType({}),
    notes: Sequence[str] = (),
    libraries: Sequence[str] = ("equinox",),
) -> int:
    """Measures the rows that the command line asks for; the exit status is 1 if it asks for a check that fails.

    A check measures what is missed up to twice more, in a new process each time: noise, or what a process happens to
    be like, may spoil one run, not three. `known`: rows that are missed, by name. `notes` are printed below the table:
    what could not be measured here, and why. `libraries`: whose versions matter.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions of every row")
    parser.add_argument("--rows", metavar="SUBSTRING", default="", help="only rows that contain it")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the results here")
    parser.add_argument("--check", action="store_true", help="exit 1 if a budget is missed in three processes")
    options = parser.parse_args()
    chosen = [row for row in rows if options.rows.lower() in row[0].lower()]
    if not chosen:
        parser.error(f"no row contains {options.rows!r}; rows: " + "; ".join(row[0] for row in rows))

    # A persistent cache of compiled programs would make first calls depend on earlier runs.
    jax.config.update("jax_enable_compilation_cache", False)
    done = []
    with tqdm.tqdm(chosen, unit="row", leave=False, disable=None) as bar:
        for name, budget, measure in bar:
            bar.set_postfix_str(name)
            row = replace(measure(Effort(options.quick), name, budget), known=known.get(name))
            for _ in range(2 if options.check else 0):
                if not row.held:
                    row = replace(measure_again(name, options.quick), known=known.get(name))
            done.append(row)

    # Wide enough for the table also where the output is a file.
    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=180)
    console.print(as_table(done, forms, ratios_of, libraries))
    if options.json:
        options.json.write_text(json.dumps(as_json(done, options.quick, libraries), indent=2) + "\n")
    for row in done:
        if row.known is not None and not row.met:
            console.print(f"{row.work}: {row.known.reason}", highlight=False)
    for note in notes:
        console.print(note, highlight=False)
    missed = [row.work for row in done if not row.held]
    if missed:
        console.print(f"{len(missed)} of {len(done)} budgets missed: " + "; ".join(missed))
    return 1 if missed and options.check else 0
