"""Finds a function that a script has made jax trace again and again, with the reason of each trace."""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from partax._doctor.array_types import traced_type
from partax._doctor.compiled_programs import CompiledProgram
from partax._doctor.figures import seconds_text
from partax._doctor.finding import Finding, Severity, finding_at
from partax._explain.description import type_text

_FEWEST = 3  # traces of one function
_FEWEST_OF_SHAPES = 5  # a few shapes, structures and modes are as it should be
_MANY = 10
_LEAST_SECONDS = 0.05  # that all but the first of them took
_LISTED = 3  # reasons, the latest
_NUMBER = re.compile(r".*?(?:^| )(\S+): static (?:int|float) ", re.DOTALL)
_UNKNOWN = "a static argument, a setting of jax or the function is another one"
_MODE = re.compile(r": static (?:str|bool) ")

Change = tuple[str, Literal["shape", "type", "value", "mode"]]  # as text, and in what; a mode is a string or a flag

_SIZES = (
    "Few shapes and one structure are few programs: give what grows its final size at once, pad what differs in length "
    "to a few sizes, such as powers of two, and drop or pad the last batch."
)
_STATIC = (
    "Pass `{}` as an array, by `jnp.asarray`, and not as a static value: a number that is one is a part of the "
    "program. This needs that no shape and no Python `if` or `min` depends on it."
)
_MODES = "Each value of a static string or flag is a program: pass few values, or split the function by them."
_ONCE = (
    "Pass arrays of the same types each time, and static values that stay; create the function once, outside of the "
    "loop that calls it, and pass what it closes over as arguments."
)


def find(programs: Sequence[CompiledProgram]) -> Iterator[Finding]:
    name, line = programs[0].program.name, programs[0].line
    traces = sum(len(program.reasons) for program in programs)
    seconds = sum(program.seconds for program in programs) * (1 - 1 / max(traces, 1))
    if line is None or seconds < _LEAST_SECONDS:
        return
    changes = [_change(before, after) for before, after in itertools.pairwise(programs)]
    changes += [_with_kind(reason) for program in programs for reason in program.reasons[1:]]
    kinds = {kind for _, kind in changes}
    is_usual = kinds <= {"shape", "mode"}
    # A second program for another type is always a mistake.
    if traces < (2 if kinds == {"type"} else _FEWEST_OF_SHAPES if is_usual and kinds != {"mode"} else _FEWEST):
        return
    severity: Severity = "high" if traces >= _MANY else "low" if is_usual else "medium"
    latest = list(dict.fromkeys(text for text, _ in changes))[-_LISTED:]
    message = f"`{name}` was traced and compiled {traces} times, which took {seconds_text(seconds)} after the first; "
    message += f"the latest: {'; '.join(latest)}."
    number = _NUMBER.match(latest[-1])
    advice = _SIZES if kinds <= {"shape"} else _MODES if is_usual else _STATIC.format(number[1]) if number else _ONCE
    yield finding_at(line, "retrace", severity, message, advice, traces=traces, again_seconds=seconds)


def _change(before: CompiledProgram, after: CompiledProgram) -> Change:
    """In what the inputs of a later program of one function differ, as far as the first difference says."""
    reason = after.reasons[0] if after.reasons else ""
    if before.paths != after.paths:
        return reason or "the arguments have another structure", "shape"
    for path, old, new in zip(before.paths, before.program.jaxpr.in_avals, after.program.jaxpr.in_avals, strict=True):
        if traced_type(old) != traced_type(new):  # `dynamic_` is Equinox's own name
            is_named = bool(reason) and path.startswith("dynamic_")
            text = reason if is_named else f"{path}: {type_text(old)} -> {type_text(new)}"
            return text, "shape" if traced_type(old)[1:] == traced_type(new)[1:] else "type"
    return _with_kind(reason)


def _with_kind(reason: str) -> Change:
    return reason or _UNKNOWN, "mode" if _MODE.search(reason) else "value"
