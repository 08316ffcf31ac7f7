"""Finds functions that a script has made jax trace again and again, with the reason of each trace."""

import itertools
import operator
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from partax._doctor.array_types import type_text
from partax._doctor.compiled_programs import SINGLE_LOOPS, CompiledProgram, by_function
from partax._doctor.diagnosis import Diagnosis
from partax._doctor.figures import seconds_text
from partax._doctor.finding import Severity, finding_at
from partax._doctor.latest_calls import ANOTHER, CLEARED, CLOSES_OVER, RECREATED
from partax._doctor.lines import Line
from partax._pytree.short_text import one_line

_FEWEST = 3  # programs of one function: a second one, for another shape or mode, is as it should be
_FEWEST_SIZES = 5
_MANY = 10
_LEAST_SECONDS, _LEAST_SECONDS_OF_LIBRARY = 0.05, 0.3  # that all but the first of them took
_LATEST = 3
_OPTIMIZER = re.compile(r"(\S+)\.(?:init|update): \w+ at optax/")
_NUMBER = re.compile(r".*?(?:^| )(\S+): static (?:int|float) ", re.DOTALL)
_NO_CHOICE = re.compile(r"created again|dropped| is new|: static (?:int|float) ")
_LONGEST = 200  # characters of a reason


def find_traced_again(programs: Sequence[CompiledProgram]) -> list[Diagnosis]:
    """A diagnosis, of one finding, for each function that was traced again and again; and for each line that gives a
    function of a library one that is created again each time.
    """
    functions = [_of_function(several) for several in by_function(programs)]
    return [it for it in (*functions, *map(_of_library, programs)) if it is not None]


def _of_function(programs: list[CompiledProgram]) -> Diagnosis | None:
    name, line = programs[0].name, programs[0].line
    programs = [it for it in programs if it.reasons[:1] != [ANOTHER]] or programs[:1]
    times = sum(it.times - it.placed - it.reasons[1:].count(ANOTHER) for it in programs)
    seconds = sum(it.seconds for it in programs) * (1 - 1 / max(times, 1))
    if line is None or not line.is_users or seconds < _LEAST_SECONDS:
        return None
    reasons = list(dict.fromkeys(_difference(before, after) for before, after in itertools.pairwise(programs)))
    if times > len(programs):
        known = [reason for it in programs for reason in it.reasons[1:] if reason not in ("", ANOTHER)]
        why = known[-1] if known else f"by another static argument, or {RECREATED}"
        reasons.append(f"{times - len(programs)} with arrays of the types of an earlier one: {why}")
    shapes = [[getattr(it, "shape", ()) for it in (*one.jaxpr.in_avals, *one.jaxpr.out_avals)] for one in programs]
    changes = _changes(programs, shapes)
    is_small = times < _FEWEST_SIZES or (times < _MANY and _are_buckets(shapes))
    # Two modes of each shape, such as training and evaluation with a last batch.
    is_of_modes = set(Counter(map(str, shapes)).values()) == {2} and not any(it[0] or it[2] for it in changes)
    is_of_shapes = is_of_modes or all(it[0] or it[1:] == (True, False) for it in changes)
    is_of_sizes = times == len(programs) and is_of_shapes
    # A second program for another type alone is always a mistake.
    if is_small if is_of_sizes else times < _FEWEST and changes != [(False, False, True)]:
        return None
    message = f"`{name}` was traced and compiled {times} times, which took {seconds_text(seconds)} after the first; "
    message += f"the latest: {'; '.join(reasons[-_LATEST:])}."
    is_chosen = times < _FEWEST_SIZES and not any(map(any, changes)) and not _NO_CHOICE.search(message)
    severity: Severity = "high" if times >= _MANY else "low" if is_of_sizes or is_chosen else "medium"
    is_loop = programs[0].first_line is not None and name in SINGLE_LOOPS
    advice = _SIZES if is_of_sizes else _LOOP if is_loop else _advice(reasons[-1])
    return _diagnosis(name, line, severity, times, seconds, message, advice)


def _changes(programs: list[CompiledProgram], shapes: list[Any]) -> list[tuple[bool, ...]]:
    """Of each program and the next one, whether the paths, the shapes and the types of arrays differ."""
    avals = [(*it.jaxpr.in_avals, *it.jaxpr.out_avals) for it in programs]
    paths = [(*it.paths, *it.result_paths) for it in programs]
    types = [[(getattr(it, "dtype", None), bool(getattr(it, "weak_type", False))) for it in row] for row in avals]
    return [tuple(map(operator.ne, *pair)) for pair in itertools.pairwise(zip(paths, shapes, types, strict=True))]


def _are_buckets(shapes: Sequence[Sequence[Any]]) -> bool:
    """Whether the lengths in which arrays differ are of few sizes: powers of two, or multiples of 32."""
    by_place = [set(lengths) for lengths in zip(*map(itertools.chain.from_iterable, shapes), strict=False)]
    changed = set[int]().union(*(it for it in by_place if len(it) > 1))
    return bool(changed) and all(it % 32 == 0 or it & (it - 1) == 0 for it in changed)


def _difference(before: CompiledProgram, after: CompiledProgram) -> str:
    """The first input that is of another type in a later program of one function."""
    reason = after.reasons[0] if after.reasons else ""
    if before.paths != after.paths:
        return reason or "the arguments have another structure"
    for path, old, new in zip(before.paths, before.jaxpr.in_avals, after.jaxpr.in_avals, strict=True):
        if str(old) != str(new):  # `dynamic_` is Equinox's own name
            return reason if reason and path.startswith("dynamic_") else f"{path}: {type_text(old)} -> {type_text(new)}"
    return reason or "a static argument or a setting of jax is another one"


def _of_library(program: CompiledProgram) -> Diagnosis | None:
    """Of a library's function, such as a solver, that is given another function each time."""
    reasons = [reason for reason in program.reasons if " is new" in reason]
    seconds, times = program.seconds * len(reasons) / max(program.times, 1), program.times
    if program.is_users or program.site is None or len(reasons) < _FEWEST - 1 or seconds < _LEAST_SECONDS_OF_LIBRARY:
        return None
    message = f"`{program.name}` was traced and compiled {times} times from this line, which took "
    message += f"{seconds_text(seconds)} after the first: a function among its arguments is created again each time. "
    message += f"The latest: {one_line(reasons[-1], _LONGEST)}."
    severity: Severity = "high" if times >= _MANY else "medium"
    return _diagnosis(program.site.function, program.site, severity, times, seconds, message, _FOR_LIBRARY)


_SIZES = """Few shapes and one structure are few programs: give what grows its final size at once, pad what differs in
length to a few sizes, such as powers of two, and drop or pad the last batch."""
_LOOP = """Compile the function around it by `jax.jit`: outside of one, a loop is compiled again for each function that
is created for it."""
_FOR_LIBRARY = """Compile the function around this call by `jax.jit`, with what changes as an argument; or create the
inner function once, and pass what changes through the arguments that the library has for it."""
_STATIC = """Pass `{}` as an array, by `jnp.asarray`, and not as a static value: a number that is one is a part of the
program. This needs that no shape and no Python `if` or `min` depends on it."""
_OPTIMIZER_ONCE = """Create the optimizer `{}` once, outside of the loop; a learning rate that changes is a schedule of
optax, or an argument by `optax.inject_hyperparams`."""
_NOT_CLEARED = """Leave the caches of jax, or clear them where the last program has run: each function is compiled
again for its next call."""
_CLOSURE = "Create the function once, outside of the loop that calls it, and pass what it closes over as arguments: {}."
_ONCE = """Pass arrays of the same types each time, and static values that stay; create the function once, outside of
the loop that calls it."""


def _advice(reason: str) -> str:
    if optimizer := _OPTIMIZER.search(reason):
        return _OPTIMIZER_ONCE.format(optimizer[1])
    if number := _NUMBER.match(reason):
        return _STATIC.format(number[1])
    closed_over = reason.partition(CLOSES_OVER)[2]
    return _NOT_CLEARED if CLEARED in reason else _CLOSURE.format(closed_over) if closed_over else _ONCE


def _diagnosis(
    name: str, line: Line, severity: Severity, count: int, seconds: float, message: str, advice: str
) -> Diagnosis:
    advice = advice.replace("\n", " ")
    finding = finding_at(line, "retrace", severity, message, advice, traces=count, again_seconds=seconds)
    return Diagnosis(name, line.place, (finding,), {"traces": count})
