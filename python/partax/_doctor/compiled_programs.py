"""The programs that were compiled in this process, and how the doctor examines one of them."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

from partax import _core
from partax._doctor.examined import Examined, Leaf
from partax._doctor.lines import Line, function_called_by, is_users
from partax._report.function_reports import program_of
from partax._report.record import Record

LOOPS_BY_THEMSELVES = ("scan", "while", "cond")  # each is a program where nothing around it is compiled
_ASKED = 20  # equations of a library's program for the user's function around them


@dataclasses.dataclass
class Program:
    """A program that was compiled in this process.

    Attributes:
      name: the function's name.
      jaxpr: the program.
      donated: for each input, whether it is donated.
      paths: the path of each input.
      times: how often it was lowered.
      lower_seconds, compile_seconds, trace_seconds: what that took, in all.
      known: the function's first line, where partax knows it; that of a loop outside of any function that is compiled.
      site: the user's line that was running.
    """

    name: str
    jaxpr: Any
    donated: tuple[bool, ...]
    paths: tuple[str, ...]
    times: int = 0
    lower_seconds: float = 0.0
    compile_seconds: float = 0.0
    trace_seconds: float = 0.0
    known: Line | None = None
    site: Line | None = None

    @property
    def seconds(self) -> float:
        """What tracing, lowering and compiling took."""
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    @functools.cached_property
    def line(self) -> Line | None:
        """The first line of the function, if jax knows it; of the user's own in a wrapper of a library."""
        line = self._traced
        if self.known is not None or line is None or is_users(line):
            return self.known or line
        return function_called_by(line.file, self.jaxpr.jaxpr.eqns[:_ASKED]) or line

    @property
    def _traced(self) -> Line | None:
        """The first line of the function that jax has traced."""
        _, _, place = str(getattr(self._info, "func_src_info", "") or "").rpartition(" at ")
        file, _, number = place.rpartition(":")
        return Line(file, int(number), self.name) if file and number.isdigit() else None

    @property
    def _info(self) -> Any:
        return getattr(getattr(self.jaxpr, "jaxpr", None), "debug_info", None)

    @property
    def result_paths(self) -> tuple[str, ...]:
        """The path of each output as jax knows it; by its number alone where jax has traced a function of a library."""
        names = tuple(map(str, getattr(self._info, "result_paths", None) or ()))
        is_users_own = self._traced is not None and is_users(self._traced)
        count = len(self.jaxpr.out_avals)
        return names if is_users_own and len(names) == count else tuple(f"output {i}" for i in range(count))

    @property
    def is_users(self) -> bool:
        """Whether the function is the user's, and not one of jax or of a library."""
        return self.line is not None and is_users(self.line)

    @property
    def defined(self) -> str:
        """Where the function is defined, such as `train.py:12`; empty where nobody knows."""
        return "" if self.line is None else self.line.place


def traced_programs() -> Iterator[Program]:
    """The programs of partax's own functions that live, of which jax still holds the trace."""
    for cache in _core.caches():
        history = cache.history
        if history is None:
            continue
        known = None if history.defined is None else Line(*history.defined, history.name)
        records = {record.number: record for record in history.records}
        for _, target, log in cache.entries():
            for record in (records[number] for number, _ in log if number in records):
                jaxpr = program_of(target, record)
                if jaxpr is not None:
                    donated = (False,) * len(jaxpr.in_avals)
                    trace, lower, compile = (record.seconds[it] for it in ("trace", "lower", "compile"))
                    yield Program(
                        history.name, jaxpr, donated, _argument_paths(record), 1, lower, compile, trace, known
                    )


def by_function(programs: Iterable[Program]) -> list[list[Program]]:
    """The programs of each function, in the order in which they are given."""
    functions: dict[tuple[str, Line | None], list[Program]] = {}
    for program in programs:
        functions.setdefault((program.name, program.line), []).append(program)
    return list(functions.values())


def stage_seconds(programs: Iterable[Program]) -> dict[str, float]:
    """What each stage took of all programs together, by the name of its figure."""
    names = ("trace_seconds", "lower_seconds", "compile_seconds")
    return {name: sum(getattr(program, name) for program in programs) for name in names}


def calls_of(program: Program) -> int:
    """How often partax's function of a program has been called; the most of those that are made at its line."""
    found = 0
    for cache in _core.caches():
        history, line = cache.history, program.line
        if history is not None and line is not None and (history.name, history.defined) == (program.name, line[:2]):
            found = max(found, sum(cache.info()[2:4]))
    return found


def _argument_paths(record: Record) -> tuple[str, ...]:
    pairs = record.snapshot.pairs()
    return tuple(path for path, part in pairs if part.key[0] == "array")


def paths_of(jaxpr: Any) -> tuple[str, ...]:
    """The path of each input: as partax knows it in a call of its own, else as jax does."""
    inputs = len(jaxpr.in_avals)
    under_way = _core.call_under_way()
    record = under_way[1] if under_way is not None else None
    if record is not None:
        paths = _argument_paths(record)
        if len(paths) == inputs:
            return paths
    names = getattr(getattr(jaxpr.jaxpr, "debug_info", None), "arg_names", None) or ()
    return tuple(str(name) for name in names) if len(names) == inputs else tuple(f"input {i}" for i in range(inputs))


def examined_program(program: Program, function: Any = None) -> Examined:
    """A program that was compiled, as the doctor examines it; with its function, where that is known."""
    avals = program.jaxpr.in_avals
    donated = program.donated if len(program.donated) == len(avals) else (False,) * len(avals)
    return Examined(
        name=program.name,
        defined=program.defined,
        function=function,
        wrapper=None,
        jaxpr=program.jaxpr,
        arguments=tuple(map(Leaf, program.paths, avals, donated)),
        results=tuple(map(Leaf, program.result_paths, program.jaxpr.out_avals)),
        trace_seconds=program.trace_seconds,
        lower_seconds=program.lower_seconds,
        compile_seconds=program.compile_seconds,
    )
