"""Reads what the benchmarks have written: bench/results/*.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

BENCHMARKS = (
    *("dispatch", "families", "nnx", "partition", "trees", "tracing", "recompile", "accelerate", "threads"),
    *("distributed", "doctor", "layers", "bound", "steps", "warm_start", "gpu"),
)
SWEEPS = tuple(
    f"sweep_{name}" for name in ("arrays", "nodes", "work", "leaves", "retraces", "devices", "nnx", "bound", "steps")
)

SPELT = {"python": "Python", "equinox": "Equinox", "flax": "Flax", "inox": "Inox", "dm-haiku": "Haiku"}
NOT_NAMED = ("jaxlib",)
"""Its version is that of jax."""


class ResultsError(Exception):
    """A file of results is missing or damaged; the text says what to do."""


@dataclass(frozen=True)
class Point:
    """The median of one form at one place, between the quartiles; see bench/points.py."""

    panel: str
    form: str
    at: float
    quantity: str
    low: float
    median: float
    high: float
    samples: int


@dataclass(frozen=True)
class Row:
    """One line of a table of budgets; see bench/budgets.py."""

    work: str
    seconds: dict[str, float]
    spread: float
    """The widest of the quartiles of a form, over its median."""
    quantity: str
    measured: float
    unit: str
    budget: float | None
    met: bool
    known: tuple[float, str] | None
    """How far the budget may be missed, and why."""

    @property
    def held(self) -> bool:
        """Whether it is met, or missed by no more than is known."""
        return self.met or (self.known is not None and self.measured <= self.known[0])

    @property
    def base(self) -> str | None:
        """The form that the budget is a multiple of."""
        return self.unit.removeprefix("x ") if self.unit.startswith("x ") else None


@dataclass(frozen=True)
class Results:
    """One file."""

    name: str
    commit: str
    changed: bool
    date: str
    versions: dict[str, str]
    machine: dict[str, Any]
    device: str
    quick: bool
    rows: tuple[Row, ...]
    points: tuple[Point, ...]

    @property
    def origin(self) -> str:
        """Machine, versions, commit and date, for a caption."""
        versions = [f"{SPELT.get(name, name)} {of}" for name, of in self.versions.items() if name not in NOT_NAMED]
        machine = "{cpu}, {cores} cores, {system}".format(**self.machine)
        machine += "" if self.device == "cpu" else f", {self.device}"
        changes = " with changes" if self.changed else ""
        quick = "; a quick run" if self.quick else ""
        return f"{machine}; {', '.join(versions)}; commit {self.commit[:10]}{changes}, {self.date}{quick}."


def read(folder: Path, name: str) -> Results:
    """The results of that name. A file that is missing or damaged is a `ResultsError`."""
    file = folder / f"{name}.json"
    measure = f"run `python bench/record.py --only {name}`, which measures it"
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ResultsError(f"{file} is missing: {measure}") from None
    try:
        return _results(name, _members(json.loads(text), "the file"))
    except (ValueError, TypeError, KeyError) as error:
        what = f"has no {error}" if isinstance(error, KeyError) else str(error)
        raise ResultsError(f"{file} is damaged ({what}): {measure}") from error


def _results(name: str, found: dict[str, Any]) -> Results:
    points = tuple(map(_point, found["points"])) if name in SWEEPS else ()
    rows = tuple(map(_row, found["rows"])) if name in BENCHMARKS else ()
    if not points and not rows:
        raise ValueError("it holds no figures")
    machine, versions = _members(found["machine"], "machine"), _members(found["versions"], "versions")
    return Results(
        name=name,
        commit=_text(found["commit"], "commit"),
        changed=bool(found["changed"]),
        date=_text(found["date"], "date"),
        versions={library: _text(version, library) for library, version in versions.items()},
        machine={key: machine[key] for key in ("cpu", "cores", "system")},
        device=_text(found["device"], "device"),
        quick=bool(found["quick"]),
        rows=rows,
        points=points,
    )


def _point(found: Any) -> Point:
    member = partial(_number, of=found)
    low, median, high = member("low"), member("median"), member("high")
    if not low <= median <= high:
        raise ValueError(f"the median {median} is not between the quartiles {low} and {high}")
    texts = {key: _text(found[key], key) for key in ("panel", "form", "quantity")}
    return Point(**texts, at=member("at"), low=low, median=median, high=high, samples=int(member("samples")))


def _row(found: Any) -> Row:
    member = partial(_number, of=found)
    known = found.get("known")
    return Row(
        work=_text(found["work"], "work"),
        seconds={form: member(form, of=found["seconds"]) for form in found["seconds"]},
        spread=max(member(form, of=found["spread"]) for form in found["spread"]),
        quantity=_text(found.get("quantity", "a call"), "quantity"),
        measured=member("measured"),
        unit=_text(found["unit"], "unit"),
        budget=None if found["budget"] is None else member("budget"),
        met=bool(found["met"]),
        known=None if known is None else (member("limit", of=known), _text(known["reason"], "reason")),
    )


def _number(key: str, of: Mapping[str, Any]) -> float:
    value = _members(of, "a point or a row")[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{key} is {value!r}, not a number")
    return float(value)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} is {value!r}, not a text")
    return value


def _members(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is {value!r}, not an object")
    return value
