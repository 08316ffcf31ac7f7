"""Finds functions that a script has made jax trace again and again, with the reason of each trace."""

import itertools
import operator
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from partax._doctor import compiled_programs as compiled
from partax._doctor.compiled_programs import LOOPS_BY_THEMSELVES, Program, by_function, line_of_history, seconds_of
from partax._doctor.doctor import Diagnosis
from partax._doctor.equations import type_text
from partax._doctor.examined import argument_name
from partax._doctor.finding import Severity, finding_at
from partax._doctor.lines import NOWHERE, Line, grouped
from partax._pytree.call_site import site_text
from partax._pytree.short_text import one_line
from partax._report.history import History
from partax._report.table import seconds_text

_FEWEST = 3  # programs of one function: a second one, for another shape or mode, is as it should be; but see _retyped
_FEWEST_SIZES = 5
_MANY = 10
_LEAST_SECONDS = 0.05  # that all but the first of them took
_LATEST = 3
_OPTIMIZER = re.compile(r"(\S+)\.(?:init|update): \w+ at optax/")
_OPTIMIZER_ANEW = "the optimizer was made anew"
_NUMBER = re.compile(r".*?(?:^| )(\S+): static (?:int|float) ", re.DOTALL)
_NO_CHOICE = re.compile(r"made anew|dropped|optimizer| is new | at 0x|: static (?:int|float) ")
_NOTICED, _MUCH_SECONDS, _VERY_MUCH = 0.3, 2.0, 5.0
_IS_NEW = " is new "  # so the reason of a trace tells of a function
_LONGEST = 200  # characters of it

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
        several = [it for it in several if it.reasons[:1] != [compiled.BESIDE]] or several[:1]
        times = sum(it.times - it.placed - it.reasons[1:].count(compiled.BESIDE) for it in several)
        reasons = list(dict.fromkeys(_difference(before, after) for before, after in itertools.pairwise(several)))
        if times > len(several):
            given = [reason for it in several for reason in it.reasons[1:] if reason]
            why = given[-1] if given else "by another static argument, or made anew"
            optimizer = _OPTIMIZER.match(why)  # which is several functions of optax's, each in others
            why = f"{_OPTIMIZER_ANEW}, `{optimizer[1]}`" if optimizer else why
            reasons.append(f"{times - len(several)} with arrays of the types of an earlier one: {why}")
        seconds = sum(it.seconds for it in several) * (1 - 1 / times)
        avals = [((*it.paths, *it.result_paths), (*it.jaxpr.in_avals, *it.jaxpr.out_avals)) for it in several]
        types = [list(zip(*it, strict=True)) for it in avals]
        if _begins_as_none(several):
            types = []
        is_loop = several[0].known is not None and name in LOOPS_BY_THEMSELVES
        found += _diagnosis(name, line, times, seconds, reasons, types, is_loop)
    return found


def of_operations(programs: Sequence[Program]) -> list[Diagnosis]:
    """A diagnosis for each function that runs operations, or functions of a library, on arrays of ever-new shapes."""
    of_libraries = (it for it in programs if not it.is_users)
    by_line = grouped(of_libraries, lambda it: (it.name, it.site or NOWHERE))
    lines = [(line, it) for (_, line), it in by_line.items() if line.is_users and _sizes(it) >= _MANY]
    found: list[Diagnosis] = []
    groups = grouped(lines, lambda it: (it[0].file, it[0].function, _grows(_types(it[1]))))
    for (_, name, grows), several in groups.items():
        line, most = max(several, key=lambda it: seconds_of(it[1]))
        count, seconds = sum(len(it) for _, it in several), sum(seconds_of(it) for _, it in several)
        if seconds < (_LEAST_SECONDS if grows else _MUCH_SECONDS):
            continue
        more, (what, advice) = f" and {len(several) - 1} others {count - len(most)} times,", _RESIZED[grows]
        others = more if len(several) > 1 else ""
        message = f"`{most[0].name}` was compiled {len(most)} times at this line,{others} for {what}: "
        message += f"{_difference(*most[-2:])} at last. This took {seconds_text(seconds)}."
        severity: Severity = "high" if seconds >= _VERY_MUCH else "medium" if seconds >= _MUCH_SECONDS else "low"
        found.append(_of_one(name, line, severity, count, seconds, message, advice))
    return found


_GROWING = """Begin with an array of the final size and write into it inside of a compiled function, or keep a list and
put it together once, by `jnp.stack` or `jnp.concatenate`."""
_RESIZING = """Each shape is a program for each operation: pad to a few sizes and compile what is done with them by
`jax.jit`, mask by `jnp.where` in place of `x[mask]`, or do it in NumPy, which compiles nothing."""
# Arrays of many shapes, by whether they grow: what they are, and what to do.
_RESIZED = {True: ("an array that grows", _GROWING), False: ("arrays of ever-new shapes", _RESIZING)}


def of_given_functions(programs: Sequence[Program]) -> list[Diagnosis]:
    """A diagnosis for each function of a library, such as a solver, that is given a function which is made anew."""
    found: list[Diagnosis] = []
    for it in programs:
        reasons = [reason for reason in it.reasons if _IS_NEW in reason]
        seconds = it.seconds * len(reasons) / it.times
        if it.is_users or it.site is None or len(reasons) < _FEWEST - 1 or seconds < _NOTICED:
            continue
        message = f"`{it.name}` was traced and compiled {it.times} times from this line, which took "
        message += f"{seconds_text(seconds)} after the first: a function that it is given is made anew each time. The "
        message += f"latest: {one_line(reasons[-1], _LONGEST)}."
        severity: Severity = "high" if it.times >= _MANY else "medium"
        found.append(_of_one(it.site.function, it.site, severity, it.times, seconds, message, _GIVEN))
    return found


def _types(programs: Sequence[Program]) -> list[Sequence[Any]]:
    return [it.jaxpr.in_avals for it in programs]


def _sizes(programs: Sequence[Program]) -> int:
    """How many sizes arrays have; 1 where they differ in rank too, as the parts of a model do."""
    shapes = {tuple(aval.shape for aval in avals) for avals in _types(programs)}
    return len(shapes) if len({tuple(map(len, it)) for it in shapes}) == 1 else 1


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
    # Nobody wants such a second program.
    is_retyped = not types or changes == [(False, False, True)]
    is_of_two_modes = set(Counter(map(str, shapes)).values()) == {2} and not any(it[0] or it[2] for it in changes)
    is_resized = count == len(types) and (is_of_two_modes or all(it[0] or it[1:] == (True, False) for it in changes))
    # Buckets of lengths, and a last batch in two modes, are as they should be.
    is_small = count < _FEWEST_SIZES or (count < _MANY and _are_buckets(shapes))
    if (is_resized and is_small) or (count < _FEWEST and not is_retyped) or seconds < _LEAST_SECONDS:
        return []
    message = f"`{name}` was traced and compiled {count} times, which took {seconds_text(seconds)} after the first; "
    message += f"the latest: {'; '.join(reasons[-_LATEST:])}."
    is_chosen = count < _FEWEST_SIZES and bool(types) and not any(map(any, changes)) and not _NO_CHOICE.search(message)
    severity: Severity = "high" if count >= _MANY else "low" if is_resized or is_chosen else "medium"
    advice = _SIZES if is_resized else _LOOP if is_loop else _ARRAYS if not types else _advice(reasons[-1])
    return [_of_one(name, line, severity, count, seconds, message, advice)]


_SIZES = """Few shapes and one structure are few programs: give what grows its final size at once, pad what differs in
length to a few sizes, such as powers of two, and drop or pad the last batch."""
_LOOP = """Compile the function around it by `jax.jit`: outside of one, a loop is compiled again for each function that
is made anew for it."""
_ARRAYS = "Begin with arrays in the place of None, of the types that come back, such as zeros."
_GIVEN = """Compile the function around this call by `jax.jit`, with what changes as an argument; or make the function
that is given once, and pass what changes through the arguments that the library has for it."""
_STATIC = """Pass `{}` as an array, by `jnp.asarray`, and not as a static value: a number that is one is a part of the
program. This needs that no shape and no Python `if` or `min` depends on it."""
_OPTIMIZER_ONCE = """Make the optimizer once, outside of the loop; a learning rate that changes is a schedule of optax,
or an argument by `optax.inject_hyperparams`."""
_NOT_CLEARED = """Leave the caches of jax, or clear them where the last program has run: each function is compiled
again for its next call."""
_CLOSURE = "Make the function once, outside of the loop that calls it, and pass what it closes over as arguments: {}."
_ONCE = """Pass arrays of the same types each time, and static values that stay; make the function once, outside of the
loop that calls it."""


def _advice(reason: str) -> str:
    if number := _NUMBER.match(reason):
        return _STATIC.format(number[1])
    if compiled.CLEARED in reason:
        return _NOT_CLEARED
    if compiled.ANEW_WITH in reason:
        return _CLOSURE.format(reason.partition(compiled.ANEW_WITH)[2])
    return _OPTIMIZER_ONCE if _OPTIMIZER_ANEW in reason else _ONCE


def _begins_as_none(programs: Sequence[Program]) -> bool:
    """Whether the second of two programs has arrays where None was, inside of a state that is returned with them."""
    if len(programs) != 2 or not any(": None -> " in reason for reason in programs[1].reasons[:1]):
        return False
    more = {path[len(argument_name(path)) :] for path in {*programs[1].paths} - {*programs[0].paths}}
    return bool(more) and all(it and any(path.endswith(it) for path in programs[0].result_paths) for it in more)


def _of_one(
    name: str, line: Line, severity: Severity, count: int, seconds: float, message: str, advice: str
) -> Diagnosis:
    advice = advice.replace("\n", " ")
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
            if told and path.startswith("dynamic_"):  # Equinox's own name
                return told
            return f"{path}: {type_text(old)} -> {type_text(new)}"
    return told or "a static argument or a setting of jax is another one"
