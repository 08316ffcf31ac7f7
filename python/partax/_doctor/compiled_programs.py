"""The programs that were compiled in this process, with what each has cost; finds what was traced again and again."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from partax._doctor.figures import seconds_text, traced_type
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.latest_calls import Trace
from partax._doctor.lines import NOWHERE
from partax._doctor.program import Program
from partax._doctor.trace_profile import Sample
from partax._explain.differences import Difference

STAGES = ("trace", "lower", "compile")


@dataclasses.dataclass
class CompiledProgram:
    program: Program  # without its function
    function: Callable[[], Any] = lambda: None  # gives the user's, if it lives
    times: int = 0  # that it was lowered
    stages: dict[str, float] = dataclasses.field(default_factory=lambda: defaultdict(float))  # their seconds
    traces: list[Trace] = dataclasses.field(default_factory=list[Trace])  # those whose reason is known
    samples: list[Sample] = dataclasses.field(default_factory=list[Sample])  # of its traces


def seconds_of(programs: Sequence[CompiledProgram], stages: Sequence[str] = STAGES) -> float:
    return sum(program.stages[stage] for program in programs for stage in stages)


_FEWEST = 3  # traces of one function
_FEWEST_OF_SHAPES = 5  # a few shapes, structures and modes are as it should be
_MANY = 10
_LEAST_SECONDS = 0.05  # that all but the first of them took
_LISTED = 3  # reasons, the latest
_KINDS = {"static int": "number", "static float": "number", "": "shape", "static str": "mode", "static bool": "mode"}
_SIZES = "Pad what differs in length to a few sizes, such as powers of two, and give what grows its final size at once."
_STATIC = "Pass `{}` as an array, by `jnp.asarray`, unless a shape or a Python `if` depends on it: a number is static."
_MODES = "Each value of a static string or flag is a program: pass few values, or split the function by them."
_ONCE = (
    "Pass arrays of the same types each time, and static values that stay; create the function once, outside of the "
    "loop that calls it, and pass what it closes over as arguments."
)


def repeated_traces(programs: Sequence[CompiledProgram]) -> Iterator[Finding]:
    name, line = programs[0].program.name, programs[0].program.line
    traces = [trace for program in programs for trace in program.traces]
    count, later = len(traces), traces[1:]
    seconds = seconds_of(programs) * (1 - 1 / max(count, 1))
    if line == NOWHERE or seconds < _LEAST_SECONDS:
        return
    kinds = {kind for trace in later for kind in (map(_kind, trace.changes) if trace.changes else ("value",))}
    is_usual = kinds <= {"shape", "mode"}
    # A second program for another type is always a mistake.
    if count < (2 if kinds == {"type"} else _FEWEST_OF_SHAPES if is_usual and kinds != {"mode"} else _FEWEST):
        return
    severity: Severity = "high" if count >= _MANY else "low" if is_usual else "medium"
    latest = "; ".join(list(dict.fromkeys(trace.reason for trace in later))[-_LISTED:])
    message = f"`{name}` was traced and compiled {count} times, which took {seconds_text(seconds)} after the first; "
    number = next((change.path for change in later[-1].changes if _kind(change) == "number"), None)
    advice = _SIZES if kinds <= {"shape"} else _MODES if is_usual else _STATIC.format(number) if number else _ONCE
    figures = {"traces": count, "again_seconds": seconds}
    yield finding_at(line, "retrace", severity, f"{message}the latest: {latest}.", advice, **figures)


def _kind(change: Difference) -> str:
    """In what two calls differ: a shape or structure, a type, a static number, a mode (string or flag), or a value."""
    _, old, new = change
    if old is None or new is None or old.label != new.label:
        return "shape"
    if old.aval is not None and new.aval is not None:
        return "shape" if traced_type(old.aval)[1:] == traced_type(new.aval)[1:] else "type"
    return _KINDS.get(new.label, "value")
