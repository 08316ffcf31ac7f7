"""Finds a function that a script has made jax trace again and again, with the reason of each trace."""

from collections.abc import Iterator, Sequence
from typing import Literal

from partax._doctor.array_types import traced_type
from partax._doctor.compiled_programs import CompiledProgram
from partax._doctor.figures import seconds_text
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.lines import NOWHERE
from partax._explain.differences import Difference

_FEWEST = 3  # traces of one function
_FEWEST_OF_SHAPES = 5  # a few shapes, structures and modes are as it should be
_MANY = 10
_LEAST_SECONDS = 0.05  # that all but the first of them took
_LISTED = 3  # reasons, the latest
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
    name, line = programs[0].program.name, programs[0].program.line
    traces = [trace for program in programs for trace in program.traces]
    count, later = len(traces), traces[1:]
    seconds = sum(program.seconds for program in programs) * (1 - 1 / max(count, 1))
    if line == NOWHERE or seconds < _LEAST_SECONDS:
        return
    kinds = {kind for trace in later for kind in (map(_kind, trace.changes) if trace.changes else ("value",))}
    is_usual = kinds <= {"shape", "mode"}
    # A second program for another type is always a mistake.
    if count < (2 if kinds == {"type"} else _FEWEST_OF_SHAPES if is_usual and kinds != {"mode"} else _FEWEST):
        return
    severity: Severity = "high" if count >= _MANY else "low" if is_usual else "medium"
    latest = list(dict.fromkeys(trace.reason for trace in later))[-_LISTED:]
    message = f"`{name}` was traced and compiled {count} times, which took {seconds_text(seconds)} after the first; "
    message += f"the latest: {'; '.join(latest)}."
    number = next((change.path for change in later[-1].changes if _kind(change) == "number"), None)
    advice = _SIZES if kinds <= {"shape"} else _MODES if is_usual else _STATIC.format(number) if number else _ONCE
    yield finding_at(line, "retrace", severity, message, advice, traces=count, again_seconds=seconds)


def _kind(change: Difference) -> Literal["shape", "type", "number", "mode", "value"]:
    """In what two calls differ; another structure counts as a shape."""
    _, old, new = change
    if old is None or new is None or old.label != new.label:
        return "shape"
    if old.aval is not None and new.aval is not None:
        is_same_type = traced_type(old.aval)[1:] == traced_type(new.aval)[1:]
        return "shape" if is_same_type else "type"
    if new.label in ("static int", "static float"):
        return "number"
    if not new.label:
        return "shape"
    return "mode" if new.label in ("static str", "static bool") else "value"
