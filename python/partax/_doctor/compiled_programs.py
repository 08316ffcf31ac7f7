"""The programs that were compiled in this process, and what the doctor knows of each."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from partax._doctor.lines import Line, first_line_of, grouped
from partax._doctor.program import Kind, Leaf, Program

SINGLE_LOOPS = ("scan", "while", "cond")  # each is a program where nothing around it is compiled
STAGES = ("trace", "lower", "compile")


@dataclasses.dataclass
class CompiledProgram:
    """A program that was compiled in this process, and what that has taken in all."""

    name: str  # of the function
    jaxpr: Any
    donated: Sequence[bool]  # whether each input is
    paths: Sequence[str]  # of each input
    kind: Kind | None = None  # whose jit has compiled it, where that is known
    function: Callable[[], Any] = lambda: None  # gives the user's, if it is known and lives
    same_arrays: Sequence[Sequence[int]] = ()  # the inputs that were one array in the latest call
    times: int = 0  # that it was lowered
    stages: dict[str, float] = dataclasses.field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))  # their seconds
    first_line: Line | None = None  # the function's, if its call tells; that of a loop that is a program itself
    site: Line | None = None  # the user's line that was running
    placed: int = 0  # how often it was lowered without a trace, as for other devices
    reasons: list[str] = dataclasses.field(default_factory=list)  # of each trace; empty where it is not known

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())

    @functools.cached_property
    def line(self) -> Line | None:
        """The first line of the function, if it is known."""
        return first_line_of(self.jaxpr.jaxpr, self.name) if self.first_line is None else self.first_line

    @property
    def result_paths(self) -> tuple[str, ...]:
        """The path of each output as jax knows it; by its number alone where jax has traced a function of a library."""
        traced, count = first_line_of(self.jaxpr.jaxpr), len(self.jaxpr.out_avals)
        names = tuple(map(str, getattr(self.jaxpr.jaxpr.debug_info, "result_paths", None) or ()))
        is_users = traced is not None and traced.is_users and len(names) == count
        return names if is_users else tuple(f"output {i}" for i in range(count))

    @property
    def is_users(self) -> bool:
        return self.line is not None and self.line.is_users

    @property
    def defined(self) -> str:
        """Where the function is defined, such as `train.py:12`; empty where that is not known."""
        return "" if self.line is None else self.line.place

    @property
    def program(self) -> Program:
        """The program as the rules read it."""
        avals = self.jaxpr.in_avals
        donated = self.donated if len(self.donated) == len(avals) else [False] * len(avals)
        arguments = tuple(map(Leaf, self.paths, avals, donated))
        results = tuple(map(Leaf, self.result_paths, self.jaxpr.out_avals))
        return Program(
            self.name, self.defined, self.function(), self.kind, self.jaxpr, arguments, results, self.stages["trace"],
            same_arrays=self.same_arrays,
        )  # fmt: skip


def by_function(programs: Iterable[CompiledProgram]) -> list[list[CompiledProgram]]:
    return list(grouped(programs, lambda program: (program.name, program.line)).values())


def seconds_of(programs: Iterable[CompiledProgram]) -> float:
    return sum(program.seconds for program in programs)


def stage_seconds(programs: Iterable[CompiledProgram]) -> dict[str, float]:
    """What each stage took of all programs together, by the name of its figure."""
    return {f"{stage}_seconds": sum(it.stages[stage] for it in programs) for stage in STAGES}
