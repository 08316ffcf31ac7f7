"""The programs that were compiled in this process, how the doctor examines one, and why a function is traced again."""

import dataclasses
import functools
import inspect
import itertools
import sys
import weakref
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from partax import _core
from partax._doctor.examined import Examined, Leaf
from partax._doctor.lines import USERS, Line, first_line_of, function_called_by, grouped, rank, running_line
from partax._jax.watched import MISS, static_arguments
from partax._report.function_reports import program_of
from partax._report.history import History
from partax._report.part import ValueParts
from partax._report.snapshot import Snapshot, described_call, differences, take_snapshot

LOOPS_BY_THEMSELVES = ("scan", "while", "cond")  # each is a program where nothing around it is compiled
STAGES = ("trace", "lower", "compile")
_ASKED = 20  # equations of a library's program for the user's function around them


@dataclasses.dataclass
class Program:
    """A program that was compiled in this process, and what that took in all."""

    name: str  # of the function
    jaxpr: Any
    donated: tuple[bool, ...]  # whether each input is
    paths: tuple[str, ...]  # of each input
    times: int = 0  # that it was lowered
    stages: dict[str, float] = dataclasses.field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))  # their seconds
    known: Line | None = None  # the function's first line as partax knows it; that of a loop that is a program itself
    site: Line | None = None  # the user's line that was running
    placed: int = 0  # how often it was lowered without a trace, as for other devices
    reasons: list[str] = dataclasses.field(default_factory=list)  # of each trace; empty where it is not known

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())

    @functools.cached_property
    def line(self) -> Line | None:
        """The first line of the function, if jax knows it; of the user's own in a wrapper of a library."""
        if self.known is not None or self.jaxpr is None:
            return self.known
        line = first_line_of(self.jaxpr.jaxpr, self.name)
        if line is None or line.is_users:
            return line
        return function_called_by(line.file, self.jaxpr.jaxpr.eqns[:_ASKED]) or line

    @property
    def result_paths(self) -> tuple[str, ...]:
        """The path of each output as jax knows it; by its number alone where jax has traced a function of a library."""
        traced, count = first_line_of(self.jaxpr.jaxpr), len(self.jaxpr.out_avals)
        names = tuple(map(str, getattr(self.jaxpr.jaxpr.debug_info, "result_paths", None) or ()))
        is_told = traced is not None and traced.is_users and len(names) == count
        return names if is_told else tuple(f"output {i}" for i in range(count))

    @property
    def is_users(self) -> bool:
        return self.line is not None and self.line.is_users

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
        records = {record.number: record for record in history.records}
        for _, target, log in cache.entries():
            for record in (records[number] for number, _ in log if number in records):
                jaxpr = program_of(target, record)
                if jaxpr is not None:
                    stages, known = dict(record.seconds), line_of_history(history)
                    yield Program(history.name, jaxpr, (), record.array_paths, 1, stages, known)


def line_of_history(history: History) -> Line | None:
    """The first line of a function of partax's; None where it has no code."""
    return None if history.defined is None else Line(*history.defined, history.name)


def by_function(programs: Iterable[Program]) -> list[list[Program]]:
    return list(grouped(programs, lambda program: (program.name, program.line)).values())


def seconds_of(programs: Iterable[Program]) -> float:
    return sum(program.seconds for program in programs)


def stage_seconds(programs: Iterable[Program]) -> dict[str, float]:
    """What each stage took of all programs together, by the name of its figure."""
    return {f"{stage}_seconds": sum(it.stages[stage] for it in programs) for stage in STAGES}


def calls_of(program: Program) -> int:
    """How often partax's function of a program has been called; the most of those that are made at its line."""
    place = (program.name, program.line and program.line[:2])
    caches = [it for it in _core.caches() if it.history is not None and (it.history.name, it.history.defined) == place]
    return 0 if program.line is None else max((sum(it.info()[2:4]) for it in caches), default=0)


def paths_of(jaxpr: Any) -> tuple[str, ...]:
    """The path of each input: as partax knows it in a call of its own, else as jax does."""
    _, record = _core.call_under_way() or (None, None)
    of_partax = () if record is None else record.array_paths
    of_jax = tuple(map(str, getattr(jaxpr.jaxpr.debug_info, "arg_names", None) or ()))
    inputs = len(jaxpr.in_avals)
    of_none = tuple(f"input {i}" for i in range(inputs))
    return next(paths for paths in (of_partax, of_jax, of_none) if len(paths) == inputs)


def examined_program(program: Program, function: Any = None) -> Examined:
    """A program that was compiled, as the doctor examines it; with its function, where that is known."""
    avals = program.jaxpr.in_avals
    donated = program.donated if len(program.donated) == len(avals) else itertools.repeat(False)
    arguments = tuple(map(Leaf, program.paths, avals, donated))
    results = tuple(map(Leaf, program.result_paths, program.jaxpr.out_avals))
    seconds = program.stages["trace"]
    return Examined(program.name, program.defined, function, None, program.jaxpr, arguments, results, seconds)


# The file and the function that make such a call, and which of its variables is what was called.
_OF_JAX = *MISS, "fun"
_OF_EQUINOX = "equinox/_jit.py", "_call", "jit_wrapper"
_OF_FLAX = "flax/nnx/transforms/compilation.py", "__call__", "self"
_MOST = 2  # differences that are told
ANEW_WITH = "closes over other values of "
CLEARED = "its program was dropped, as `jax.clear_caches()` does"
BESIDE = "it is a function beside those that were compiled before, which live on"  # as of a list of them


class _Call(NamedTuple):
    compiled: Any  # what the caller keeps as long as the compiled function
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Calls:
    """The latest call of each function, as far as a trace depends on it."""

    def __init__(self) -> None:
        self._latest: dict[Any, Snapshot] = {}
        self._closed_over: dict[Any, dict[str, int]] = {}
        self._alive: dict[Any, list[weakref.ref[Any]]] = {}  # what was compiled of each function

    def reason(self) -> str:
        """What differs in the call under way, for which a function is traced, from the one before for which it was;
        empty where that is not known.
        """
        try:
            return self._reason()
        except Exception:  # of the user's own objects
            return ""

    def _reason(self) -> str:
        call = _under_way()
        if call is None:
            return ""
        code = getattr(call.function, "__code__", None) or type(call.function)
        described, leaves = described_call(*call[1:])
        # Operations of jax's by themselves share a function: those of one line are compared.
        key = code if rank(getattr(code, "co_filename", "")) else (code, running_line())
        before, closed_before = self._latest.get(key), self._closed_over.get(key, {})
        closed = self._closed_over[key] = _closed_over(call.function) if key is code else {}
        now = self._latest[key] = take_snapshot(described, leaves, leaves, ValueParts(False, True), before)
        alive = [it() for it in self._alive.get(key, ())]
        is_known = any(it is call.compiled for it in alive)
        if not is_known:
            self._alive[key] = [weakref.ref(it) for it in (*alive, call.compiled) if it is not None]
            if alive and None not in alive and key is code:
                return BESIDE
        if before is None:
            return ""
        changes = list(map(str, differences(before, now)))
        more = f" and {len(changes) - _MOST} more" if len(changes) > _MOST else ""
        others = [f"`{name}`" for name, it in closed.items() if it != closed_before.get(name, it)]
        with_others = f", and {ANEW_WITH}{', '.join(others)}" if others else ""
        anew = CLEARED if is_known else f"it was made anew, for arguments of the same types{with_others}"
        return ", ".join(changes[:_MOST]) + more or anew


def _closed_over(function: Any) -> dict[str, int]:
    """The addresses of the values that a function closes over, by name; of functions nothing, which tell little."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    pairs = zip(names, getattr(function, "__closure__", None) or (), strict=False)
    return {name: id(it.cell_contents) for name, it in pairs if not callable(it.cell_contents)}


def _under_way() -> _Call | None:
    found, static = None, None
    frame = sys._getframe(1)
    while frame is not None and rank(frame.f_code.co_filename) != USERS:
        code = frame.f_code
        for kind in (_OF_JAX, _OF_EQUINOX, _OF_FLAX):  # a library's are around that of jax
            file, name, variable = kind
            if code.co_name == name and code.co_filename.replace("\\", "/").endswith(file):
                known = frame.f_locals
                found = _Call(known[variable], inspect.unwrap(known[variable]), known["args"], known["kwargs"])
                if kind is _OF_JAX:
                    static = static_arguments(known)
                elif kind is _OF_EQUINOX:  # which leaves every number static
                    static = None
        frame = frame.f_back
    return found if found is None or static is None else _with_arrays(found, static)


def _with_arrays(call: _Call, static: Collection[int | str]) -> _Call:
    """With arrays in the place of Python numbers, which jax traces where an argument is not static."""

    def traced(it: Any) -> Any:
        return np.asarray(it) if isinstance(it, (bool, int, float, complex)) else it

    args = [it if {i, i - len(call.args)} & {*static} else jax.tree.map(traced, it) for i, it in enumerate(call.args)]
    kwargs = {name: it if name in static else jax.tree.map(traced, it) for name, it in call.kwargs.items()}
    return _Call(call.compiled, call.function, tuple(args), kwargs)
