"""The programs that were compiled in this process, and how the doctor examines one of them."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from partax import _core
from partax._doctor.examined import Examined, Leaf
from partax._report.call_site import site_text
from partax._report.function_reports import program_of
from partax._report.record import Record


@dataclasses.dataclass
class Program:
    """A program that was compiled in this process.

    Attributes:
      name: the function's name.
      jaxpr: the program.
      donated: for each input, whether it is donated.
      paths: the path of each input.
      times: how often it was lowered.
      lower_seconds, compile_seconds: what that took, in all.
      defined: where the function is defined, such as `train.py:12`; empty where only jax knows.
    """

    name: str
    jaxpr: Any
    donated: tuple[bool, ...]
    paths: tuple[str, ...]
    times: int = 0
    lower_seconds: float = 0.0
    compile_seconds: float = 0.0
    defined: str = ""

    @property
    def seconds(self) -> float:
        """What lowering and compiling took."""
        return self.lower_seconds + self.compile_seconds


def traced_programs() -> Iterator[Program]:
    """The programs of partax's own functions that live, of which jax still holds the trace."""
    for cache in _core.caches():
        history = cache.history
        if history is None:
            continue
        records = {record.number: record for record in history.records}
        defined = "" if history.defined is None else site_text(history.defined)
        for _, target, log in cache.entries():
            for record in (records[number] for number, _ in log if number in records):
                jaxpr = program_of(target, record)
                if jaxpr is not None:
                    donated = (False,) * len(jaxpr.in_avals)
                    seconds = record.seconds["lower"], record.seconds["compile"]
                    yield Program(history.name, jaxpr, donated, _argument_paths(record), 1, *seconds, defined)


def _argument_paths(record: Record) -> tuple[str, ...]:
    pairs = zip(record.snapshot.paths, record.snapshot.parts, strict=True)
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


def examined_program(program: Program) -> Examined:
    """A program that was compiled, as the doctor examines it."""
    jaxpr = program.jaxpr
    donated = program.donated if len(program.donated) == len(program.paths) else (False,) * len(program.paths)
    info = getattr(jaxpr.jaxpr, "debug_info", None)
    results = getattr(info, "result_paths", None) or ()
    names = [str(it) for it in results] if len(results) == len(jaxpr.out_avals) else []
    return Examined(
        name=program.name,
        defined=program.defined or _defined(info),
        function=None,
        wrapper=None,
        jaxpr=jaxpr,
        arguments=tuple(
            Leaf(path, aval, is_donated)
            for path, aval, is_donated in zip(program.paths, jaxpr.in_avals, donated, strict=True)
        ),
        results=tuple(Leaf(names[i] if names else f"result[{i}]", aval) for i, aval in enumerate(jaxpr.out_avals)),
        statics={},
        out_info=None,
        trace_seconds=0.0,
        traced=None,
        lower_seconds=program.lower_seconds,
        compile_seconds=program.compile_seconds,
    )


def _defined(info: Any) -> str:
    """`train.py:12` of jax's `step at /home/me/train.py:12`."""
    place = str(getattr(info, "func_src_info", "") or "").rpartition(" at ")[2]
    return Path(place).name if place else ""
