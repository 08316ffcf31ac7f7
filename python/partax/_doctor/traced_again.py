"""Finds functions that a script has made jax trace again and again, with the reason of each trace."""

import itertools
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from partax._doctor.compiled_programs import LOOPS_BY_THEMSELVES, Program, by_function, line_of_history
from partax._doctor.diagnosis import Diagnosis
from partax._doctor.equations import type_text
from partax._doctor.finding import Severity, finding_at
from partax._doctor.lines import Line, grouped
from partax._pytree.call_site import site_text
from partax._report.figure_text import seconds_text
from partax._report.history import History

_FEWEST = 3  # programs of one function: a second one, for another shape or mode, is as it should be; but see _retyped
_FEWEST_SIZES = 5
_MANY = 10
_LEAST_SECONDS = 0.05  # that all but the first of them took
_LATEST = 3

_Types = list[tuple[str, Any]]  # of the arrays that a program takes, each with its path


def of_functions(histories: Iterable[History]) -> list[Diagnosis]:
    """A diagnosis, of one finding, for each of partax's functions that was traced again and again."""
    found: list[Diagnosis] = []
    for history in histories:
        line = line_of_history(history)
        if line is None or not line.is_users or history.nested:
            continue
        records = [it for it in history.records if not it.failed]
        again = [it for it in records if it.number > 1]
        reasons = [f"trace {it.number} at {site_text(it.site)}: {it.reason}" for it in again]
        types = [[(path, part.aval) for path, part in it.arrays()] for it in records]
        seconds = sum(sum(it.seconds.values()) for it in again)
        count = max(history.live, len(records))  # without those that raised
        found += _diagnosis(history.name, line, count, seconds, reasons, types)
    return found


def of_programs(programs: Sequence[Program], known: Iterable[Diagnosis]) -> list[Diagnosis]:
    """The same of functions of `jax.jit` and others, of which only programs are known, but for the known ones."""
    told = {(it.name, it.defined) for it in known}
    found: list[Diagnosis] = []
    for several in by_function(programs):
        name, line = several[0].name, several[0].line
        if line is None or not line.is_users or (name, several[0].defined) in told:
            continue
        times = sum(program.times - program.placed for program in several)
        reasons = list(dict.fromkeys(_difference(before, after) for before, after in itertools.pairwise(several)))
        if times > len(several):
            again = f"{times - len(several)} with arrays of the types of an earlier one"
            why = ["by another static argument, or made anew"]
            why += [reason for it in several for reason in it.reasons[1:] if reason]
            reasons.append(f"{again}: {why[-1]}")
        seconds = sum(it.seconds for it in several) * (1 - 1 / times)
        types = [list(zip(it.paths, it.jaxpr.in_avals, strict=True)) for it in several]
        is_loop = several[0].known is not None and name in LOOPS_BY_THEMSELVES
        found += _diagnosis(name, line, times, seconds, reasons, types, is_loop)
    return found


def of_operations(programs: Sequence[Program]) -> list[Diagnosis]:
    """A diagnosis for each line that runs one operation, or function of a library, on an array that grows."""
    of_libraries = (it for it in programs if not it.is_users)
    found: dict[Line, Diagnosis] = {}
    for (name, line), several in grouped(of_libraries, lambda it: (it.name, it.site)).items():
        seconds, is_much = sum(it.seconds for it in several), len(several) >= _MANY
        if line is not None and is_much and seconds >= _LEAST_SECONDS and _grows([it.jaxpr.in_avals for it in several]):
            message = (
                f"`{name}` was compiled {len(several)} times at this line, for an array that grows: "
                f"{_difference(*several[-2:])} at last."
            )
            advice = (
                "Begin with an array of the final size and write into it inside of a compiled function, or keep a list "
                "and put it together once, by `jnp.stack` or `jnp.concatenate`."
            )
            found.setdefault(line, _of_one(line.function, line, "high", len(several), seconds, message, advice))
    return list(found.values())


def _grows(types: Sequence[Sequence[Any]]) -> bool:
    """Whether an array is longer, along one axis, in each program than in the one before."""
    ranks = {tuple(len(aval.shape) for aval in avals) for avals in types}
    sizes = [tuple(length for aval in avals for length in aval.shape) for avals in types]
    pairs = itertools.pairwise(sizes if len(ranks) == 1 else [])
    steps = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairs]
    return bool(steps) and all(min(step) >= 0 and sum(map(bool, step)) in (1, 2) for step in steps)


def _diagnosis(
    name: str, line: Line, count: int, seconds: float, reasons: list[str], types: list[_Types], is_loop: bool = False
) -> list[Diagnosis]:
    paths = [[path for path, _ in arrays] for arrays in types]
    shapes = [[getattr(aval, "shape", ()) for _, aval in arrays] for arrays in types]
    dtypes = [[(getattr(it, "dtype", None), bool(getattr(it, "weak_type", False))) for _, it in row] for row in types]
    changes = [tuple(map(operator.ne, *pair)) for pair in itertools.pairwise(zip(paths, shapes, dtypes, strict=True))]
    is_retyped = changes == [(False, False, True)]  # nobody wants such a second program
    is_of_two_modes = set(Counter(map(str, shapes)).values()) == {2} and not any(it[0] or it[2] for it in changes)
    is_resized = count == len(types) and (is_of_two_modes or all(it[0] or it[1:] == (True, False) for it in changes))
    # Buckets of lengths, and a last batch in two modes, are as they should be.
    is_small = count < _FEWEST_SIZES or (count < _MANY and _are_buckets(shapes))
    if (is_resized and is_small) or (count < _FEWEST and not is_retyped) or seconds < _LEAST_SECONDS:
        return []
    advice = (
        "Few shapes and one structure are few programs: give what grows its final size at once, pad what differs in "
        "length to a few sizes, such as powers of two, and drop or pad the last batch."
        if is_resized
        else "Compile the function around it by `jax.jit`: outside of one, a loop is compiled again for each function "
        "that is made anew for it."
        if is_loop
        else "Pass arrays of the same types each time, and static values that stay; make the function once, outside of "
        "the loop that calls it."
    )
    message = (
        f"`{name}` was traced and compiled {count} times, which took {seconds_text(seconds)} after the first; the "
        f"latest: {'; '.join(reasons[-_LATEST:])}."
    )
    severity: Severity = "high" if count >= _MANY else "low" if is_resized else "medium"
    return [_of_one(name, line, severity, count, seconds, message, advice)]


def _of_one(
    name: str, line: Line, severity: Severity, count: int, seconds: float, message: str, advice: str
) -> Diagnosis:
    finding = finding_at(line, "retrace", severity, message, advice, traces=count, again_seconds=seconds)
    return Diagnosis(name, line.place, (finding,), {"traces": count})


def _are_buckets(shapes: Sequence[Sequence[Any]]) -> bool:
    """Whether the lengths in which arrays differ are of few sizes: powers of two, or multiples of 32."""
    by_place = [set(lengths) for lengths in zip(*map(itertools.chain.from_iterable, shapes), strict=False)]
    changed = set[int]().union(*(it for it in by_place if len(it) > 1))
    return bool(changed) and all(it % 32 == 0 or it & (it - 1) == 0 for it in changed)


def _difference(before: Program, after: Program) -> str:
    """The first input that is of another type in a later program of one function."""
    told = after.reasons[0] if after.reasons else ""
    if before.paths != after.paths:
        return told or "the arguments have another structure"
    for path, old, new in zip(before.paths, before.jaxpr.in_avals, after.jaxpr.in_avals, strict=True):
        if str(old) != str(new):
            return f"{path}: {type_text(old)} -> {type_text(new)}"
    return told or "a static argument or a setting of jax is another one"
