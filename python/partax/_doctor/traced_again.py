"""Finds functions that a script has made jax trace again and again, with the reason of each trace."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from partax._doctor.compiled_programs import Program, by_function
from partax._doctor.diagnosis import Diagnosis
from partax._doctor.equations import type_text
from partax._doctor.figure_text import seconds_text
from partax._doctor.finding import Severity, finding_at
from partax._doctor.lines import Line, is_users
from partax._pytree.call_site import site_text
from partax._report.history import History
from partax._report.record import Record

_FEWEST = 3  # programs of one function: a second one, for another shape or mode, is as it should be; but see _retyped
_MANY = 10
_LEAST_SECONDS = 0.1  # that all but the first of them took
_LATEST = 3


def of_functions(histories: Iterable[History]) -> list[Diagnosis]:
    """A diagnosis, of one finding, for each of partax's functions that was traced again and again."""
    found: list[Diagnosis] = []
    for history in histories:
        line = None if history.defined is None else Line(*history.defined, history.name)
        again = [it for it in history.records if it.number > 1 and not it.failed]
        if line is None or not is_users(line) or history.nested:
            continue
        reasons = [f"trace {it.number} at {site_text(it.site)}: {it.reason}" for it in again[-_LATEST:]]
        retyped = len(history.records) == 2 and _retyped(*map(_avals, history.records))
        _add(found, history.name, line, history.count, sum(map(_seconds, again)), reasons, retyped)
    return found


def of_programs(programs: Sequence[Program], known: Iterable[Diagnosis]) -> list[Diagnosis]:
    """The same of functions of `jax.jit` and others, of which only programs are known, but for the known ones."""
    told = {(it.name, it.defined) for it in known}
    found: list[Diagnosis] = []
    for several in by_function(programs):
        name, line = several[0].name, several[0].line
        if line is None or not is_users(line) or (name, several[0].defined) in told:
            continue
        times = sum(program.times for program in several)
        reasons = list(dict.fromkeys(_difference(before, after) for before, after in itertools.pairwise(several)))
        if times > len(several):
            again = f"{times - len(several)} with arrays of the types of an earlier one"
            reasons.append(f"{again}: by another static argument, or made anew")
        seconds = sum(it.seconds for it in several)
        retyped = len(several) == 2 and several[0].paths == several[1].paths
        retyped = retyped and _retyped(*(it.jaxpr.in_avals for it in several))
        _add(found, name, line, times, seconds - seconds / times, reasons[-_LATEST:], retyped)
    return found


def _add(
    found: list[Diagnosis],
    name: str,
    line: Line,
    count: int,
    seconds: float,
    reasons: Sequence[str],
    retyped: bool,
) -> None:
    """Adds what is told of a function, if it is worth a word."""
    if (count < _FEWEST and not retyped) or seconds < _LEAST_SECONDS:
        return
    severity: Severity = "high" if count >= _MANY else "medium"
    finding = finding_at(
        line,
        "retrace",
        severity,
        {"traces": count, "again_seconds": seconds},
        f"`{name}` was traced and compiled {count} times, which took {seconds_text(seconds)} after the first; the "
        f"latest: {'; '.join(reasons)}.",
        "Pass arrays of the same types each time, and static values that stay; make the function once, outside of the "
        "loop that calls it.",
    )
    found.append(Diagnosis(name, line.place, (finding,), {"traces": count}))


def _seconds(record: Record) -> float:
    return sum(record.seconds.values())


def _avals(record: Record) -> list[Any]:
    return [part.aval for part in record.snapshot.parts if part.key[0] == "array"]


def _retyped(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether arrays of the same shapes are of other dtypes or no longer weak: nobody wants such a second program."""

    def shapes(avals: Sequence[Any]) -> list[Any]:
        return [getattr(aval, "shape", None) for aval in avals]

    return shapes(before) == shapes(after) and list(map(str, before)) != list(map(str, after))


def _difference(before: Program, after: Program) -> str:
    """The first input that is of another type in a later program of one function."""
    if before.paths != after.paths:
        return "the arguments have another structure"
    for path, old, new in zip(before.paths, before.jaxpr.in_avals, after.jaxpr.in_avals, strict=True):
        if str(old) != str(new):
            return f"{path}: {type_text(old)} -> {type_text(new)}"
    return "a static argument or a setting of jax is another one"
