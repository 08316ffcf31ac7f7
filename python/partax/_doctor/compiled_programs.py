"""The programs that were compiled in this process, with what each has cost."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from partax._doctor.program import Program
from partax._explain.differences import Difference


class Trace(NamedTuple):
    reason: str  # empty for the first of a function
    changes: Sequence[Difference] = ()  # from an earlier one


@dataclasses.dataclass
class CompiledProgram:
    program: Program  # without its function
    function: Callable[[], Any] = lambda: None  # gives the user's, if it lives
    times: int = 0  # that it was lowered
    stages: dict[str, float] = dataclasses.field(default_factory=lambda: defaultdict(float))  # their seconds
    traces: list[Trace] = dataclasses.field(default_factory=list[Trace])  # those whose reason is known

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())


def seconds_of(programs: Iterable[CompiledProgram]) -> float:
    return sum(program.seconds for program in programs)


def stage_seconds(programs: Iterable[CompiledProgram]) -> dict[str, float]:
    stages = ("trace", "lower", "compile")
    return {f"{stage}_seconds": sum(program.stages[stage] for program in programs) for stage in stages}
