"""What calls, partitions, retraces and steps cost as something grows: the points of the plots of the documentation.

    python bench/sweeps.py [--quick] [--only NAME] [--at N ...] [--json FILE]

The forms of a place take turns (see interleave.py). A sweep whose library is not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

try:
    import jax
    import rich.box
    import rich.console
    import rich.table
    import tqdm

    import provenance
    from budgets import readable
    from interleave import Effort
    from points import SECONDS, Point, Sweep
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

SWEEPS = {
    "arrays": ("sweep_calls", "ARRAYS"),
    "nodes": ("sweep_calls", "NODES"),
    "work": ("sweep_calls", "WORK"),
    "leaves": ("sweep_trees", "LEAVES"),
    "retraces": ("sweep_retraces", "RETRACES"),
    "devices": ("sweep_devices", "DEVICES"),
    "nnx": ("sweep_nnx", "NNX"),
    "bound": ("sweep_below", "BOUND"),
    "steps": ("sweep_below", "STEPS"),
}
"""By name, where each is: they are imported only where they are asked for, as each needs other libraries."""


def found(names: Sequence[str]) -> tuple[list[Sweep], list[str]]:
    """The sweeps whose libraries are installed, and what to say of the others."""
    sweeps: list[Sweep] = []
    notes: list[str] = []
    for name in names:
        module, attribute = SWEEPS[name]
        try:
            sweeps.append(getattr(importlib.import_module(module), attribute))
        except (ImportError, SystemExit) as error:  # a benchmark that is imported ends where a library is missing
            notes.append(f"{name} is left out: {error}")
    return sweeps, notes


def readable_value(point: Point) -> str:
    if point.quantity == SECONDS:
        return readable(point.median)
    return f"{point.median:.2f}"


def as_table(sweep: Sweep, points: Sequence[Point]) -> rich.table.Table:
    """The points of one sweep, a line for each form."""
    table = rich.table.Table(title=sweep.name, box=rich.box.SIMPLE)
    places = sorted({point.at for point in points})
    table.add_column("")
    table.add_column("form")
    table.add_column("")
    for place in places:
        table.add_column(f"{place:,} {sweep.over}", justify="right")
    lines = {(point.panel, point.form, point.quantity): {} for point in points}
    for point in points:
        lines[point.panel, point.form, point.quantity][point.at] = readable_value(point)
    for names, values in lines.items():
        table.add_row(*names, *(values.get(place, "-") for place in places))
    return table


def as_json(measured: Sequence[tuple[Sweep, Sequence[Point]]], quick: bool) -> dict[str, Any]:
    libraries = {library: None for sweep, _ in measured for library in sweep.libraries}
    return {
        **provenance.of(libraries, quick=quick),
        "points": [{"sweep": sweep.name, "over": sweep.over} | asdict(p) for sweep, points in measured for p in points],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what the plots of the documentation show.")
    parser.add_argument("--quick", action="store_true", help="fewer places, and fewer repetitions of each")
    parser.add_argument("--only", metavar="NAME", choices=SWEEPS, help="one of " + ", ".join(SWEEPS))
    parser.add_argument("--at", metavar="N", type=int, nargs="+", help="measure at these places instead")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the points here")
    options = parser.parse_args()

    # A persistent cache of compiled programs would make retraces depend on earlier runs.
    jax.config.update("jax_enable_compilation_cache", False)
    sweeps, notes = found([options.only] if options.only else list(SWEEPS))
    places = {sweep.name: options.at or (sweep.quick_places if options.quick else sweep.places) for sweep in sweeps}
    measured: list[tuple[Sweep, list[Point]]] = []
    with tqdm.tqdm(total=sum(map(len, places.values())), unit="place", leave=False, disable=None) as bar:
        for sweep in sweeps:
            points: list[Point] = []
            for place in places[sweep.name]:
                bar.set_postfix_str(f"{sweep.name}, {place:,} {sweep.over}")
                points += sweep.measure(Effort(options.quick), place)
                bar.update()
            measured.append((sweep, points))

    # Wide enough for the tables also where the output is a file.
    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=180)
    for sweep, points in measured:
        console.print(as_table(sweep, points))
    for note in notes:
        console.print(note, highlight=False)
    if not measured:
        return 1
    if options.json:
        options.json.write_text(json.dumps(as_json(measured, options.quick), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
