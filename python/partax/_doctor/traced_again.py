"""Finds functions that a script has made jax trace again and again, with the reason of each trace."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from partax._doctor.compiled_programs import LOOPS_BY_THEMSELVES, Program, by_function
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

_Types = list[tuple[str, Any]]  # of the arrays that a program takes, each with its path


def of_functions(histories: Iterable[History]) -> list[Diagnosis]:
    """A diagnosis, of one finding, for each of partax's functions that was traced again and again."""
    found: list[Diagnosis] = []
    for history in histories:
        line = None if history.defined is None else Line(*history.defined, history.name)
        again = [it for it in history.records if it.number > 1 and not it.failed]
        if line is None or not is_users(line) or history.nested:
            continue
        reasons = [f"trace {it.number} at {site_text(it.site)}: {it.reason}" for it in again[-_LATEST:]]
        types = [_types(it) for it in history.records if not it.failed]
        _add(found, history.name, line, history.count, sum(map(_seconds, again)), reasons, types)
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
        types = [list(zip(it.paths, it.jaxpr.in_avals, strict=True)) for it in several]
        is_loop = several[0].known is not None and name in LOOPS_BY_THEMSELVES
        _add(found, name, line, times, seconds - seconds / times, reasons[-_LATEST:], types, is_loop)
    return found


def _add(
    found: list[Diagnosis],
    name: str,
    line: Line,
    count: int,
    seconds: float,
    reasons: Sequence[str],
    types: Sequence[_Types],
    is_loop: bool = False,
) -> None:
    """Adds what is told of a function, if it is worth a word."""
    pairs = list(itertools.pairwise(types))
    retyped = len(pairs) == 1 and _retyped(*pairs[0])
    if (count < _FEWEST and not retyped) or seconds < _LEAST_SECONDS:
        return
    # A few buckets of lengths, widths that are swept, or a last batch, in two modes, are as they should be.
    resized = count == len(types) and all(_resized(*pair) for pair in pairs)
    severity: Severity = "high" if count >= _MANY else "low" if resized else "medium"
    finding = finding_at(
        line,
        "retrace",
        severity,
        {"traces": count, "again_seconds": seconds},
        f"`{name}` was traced and compiled {count} times, which took {seconds_text(seconds)} after the first; the "
        f"latest: {'; '.join(reasons)}.",
        "Few shapes and one structure are few programs: give what grows its final size at once, pad what differs in "
        "length to a few sizes, such as powers of two, and drop or pad the last batch."
        if resized
        else "Compile the function around it by `jax.jit`: outside of one, a loop is compiled again for each function "
        "that is made anew for it."
        if is_loop
        else "Pass arrays of the same types each time, and static values that stay; make the function once, outside of "
        "the loop that calls it.",
    )
    found.append(Diagnosis(name, line.place, (finding,), {"traces": count}))


def _seconds(record: Record) -> float:
    return sum(record.seconds.values())


def _types(record: Record) -> _Types:
    return [(path, part.aval) for path, part in record.snapshot.pairs() if part.key[0] == "array"]


def _retyped(before: _Types, after: _Types) -> bool:
    """Whether arrays of the same shapes are of other dtypes or no longer weak: nobody wants such a second program."""
    return _shapes(before) == _shapes(after) and _kinds(before) != _kinds(after)


def _resized(before: _Types, after: _Types) -> bool:
    """Whether the arguments have another structure, or arrays in them other shapes and nothing else."""
    if [path for path, _ in before] != [path for path, _ in after]:
        return True
    return _shapes(before) != _shapes(after) and _kinds(before) == _kinds(after)


def _shapes(types: _Types) -> list[Any]:
    return [(path, getattr(aval, "shape", None)) for path, aval in types]


def _kinds(types: _Types) -> list[Any]:
    return [(getattr(aval, "dtype", None), bool(getattr(aval, "weak_type", False))) for _, aval in types]


def _difference(before: Program, after: Program) -> str:
    """The first input that is of another type in a later program of one function."""
    if before.paths != after.paths:
        return "the arguments have another structure"
    for path, old, new in zip(before.paths, before.jaxpr.in_avals, after.jaxpr.in_avals, strict=True):
        if str(old) != str(new):
            return f"{path}: {type_text(old)} -> {type_text(new)}"
    return "a static argument or a setting of jax is another one"
