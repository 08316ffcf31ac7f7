"""report: what each function has cost, by static key and trace."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from partax import _core
from partax._compat.jax_private import is_jaxpr
from partax._compat.node_families import why_called
from partax._explain import page
from partax._explain.call_site import site_text
from partax._explain.captured_arrays import Constant, captured_constants
from partax._explain.flatten_costs import flatten_microseconds
from partax._explain.history import History, kept
from partax._explain.record import Record


@dataclasses.dataclass(frozen=True)
class TraceReport:
    """What one trace has cost.

    Attributes:
      number: counts the traces of the function, from 1.
      site: the call that made it, such as `train.py:41`.
      reason: why it was made.
      calls: the calls that used it; None where its result does not tell it from the other traces of its key.
      trace_seconds: how long the function ran under tracing, with all that it calls.
      lower_seconds: how long jax took to lower it.
      compile_seconds: how long XLA took to compile it.
      executables: how often it was compiled: for other placements of its arrays, or under transformations.
      failed: whether the function raised an exception.
      equations: in its jaxpr, those of inner jaxprs included; None if jax holds the jaxpr no more.
      constants: arrays that it has captured, the largest first.
      fast_path: whether calls take jax's C++ path; None if it has not run by itself, or jax holds the jaxpr no more.
      slow_because: why not.
    """

    number: int
    site: str
    reason: str
    calls: int | None
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    executables: int
    failed: bool
    equations: int | None
    constants: tuple[Constant, ...]
    fast_path: bool | None
    slow_because: str

    @property
    def seconds(self) -> float:
        """Trace, lowering and compile seconds together."""
        return self.trace_seconds + self.lower_seconds + self.compile_seconds


@dataclasses.dataclass(frozen=True)
class KeyReport:
    """One static key of a function.

    Attributes:
      static: the static values in which it differs from the function's other keys.
      calls: how many calls it has had; None if it has been dropped, which forgets them.
      traces: its traces.
    """

    static: str
    calls: int | None
    traces: tuple[TraceReport, ...]


@dataclasses.dataclass(frozen=True)
class SlowNode:
    """A node type that is flattened by a registered Python function, in each call.

    Attributes:
      type: its name.
      count: how many there are in one call.
      microseconds: what flattening them takes of each call.
      because: where partax usually reads the classes of its library itself, why it does not read this one; else empty.
    """

    type: str
    count: int
    microseconds: float
    because: str = ""


@dataclasses.dataclass(frozen=True)
class FunctionReport:
    """What one function has cost. `str` gives a table.

    Attributes:
      name: the function's name.
      defined: where, such as `train.py:12`.
      hits: calls that did not trace; None if the function is gone.
      misses: calls that did, likewise.
      keys: its static keys, the one used last first.
      slow_nodes: what is flattened by Python functions.
    """

    name: str
    defined: str
    hits: int | None
    misses: int | None
    keys: tuple[KeyReport, ...]
    slow_nodes: tuple[SlowNode, ...]

    @property
    def traces(self) -> tuple[TraceReport, ...]:
        """The traces of all keys, by number."""
        return tuple(sorted((trace for key in self.keys for trace in key.traces), key=lambda trace: trace.number))

    @property
    def seconds(self) -> float:
        """Trace, lowering and compile seconds of all traces."""
        return sum(trace.seconds for trace in self.traces)

    def to_json(self, **options: Any) -> str:
        """The report as JSON.

        Args:
          **options: of `json.dumps`, such as `indent`.

        Returns:
          An object with the attributes of this class.
        """
        return json.dumps(_plain(self), **options)

    def __str__(self) -> str:
        calls = "gone" if self.hits is None or self.misses is None else f"{self.hits + self.misses} calls"
        head = f"{self.name} ({self.defined}): {calls}, {len(self.traces)} traces, "
        lines = [head + f"{self.seconds:.3g} s to trace and compile"]
        rows = [_HEADINGS]
        rows += [_row(key, trace, i == 0) for key in self.keys for i, trace in enumerate(key.traces)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [
                f"{cell:<{w}}" if i in (0, 9) else f"{cell:>{w}}"
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  " + "  ".join(cells).rstrip())
        for trace in self.traces:
            lines.append(f"  trace {trace.number} at {trace.site}: {trace.reason}")
            for constant in trace.constants[:_SHOWN]:
                name = constant.name or "an array without a name"
                lines.append(f"    captured {name}: {constant.type}, {_bytes_text(constant.bytes)}")
        lines += [
            f"  {node.type} x {node.count} flattened by a Python function: {node.microseconds:.1f} us a call"
            + (f"; {node.because}" if node.because else "")
            for node in self.slow_nodes
        ]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Report:
    """What all functions have cost. `str` gives a table for each.

    Attributes:
      functions: those that live and have been traced, the costliest first.
    """

    functions: tuple[FunctionReport, ...]

    def to_json(self, **options: Any) -> str:
        """The report as JSON.

        Args:
          **options: of `json.dumps`, such as `indent`.

        Returns:
          An object with the list `functions`.
        """
        return json.dumps(_plain(self), **options)

    def html(self, path: str | Path) -> None:
        """Writes one HTML file that needs no network: the timeline of this process, and why each trace was made.

        Args:
          path: the file, which is replaced as a whole or left as it was.

        Raises:
          ImportError: `partax[doctor]` is not installed.
          OSError: the file cannot be written.
        """
        page.writer(path, self)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.functions)) or "no partax function has been traced"


for _public in (TraceReport, KeyReport, SlowNode, FunctionReport, Report):
    _public.__module__ = "partax"  # where users find them, and pickles too

_HEADINGS = (
    "static key", "calls", "trace", "calls", "trace s", "lower s", "compile s", "equations", "constants", "fast path",
)  # fmt: skip
_SHOWN = 5


def _row(key: KeyReport, trace: TraceReport, first: bool) -> tuple[str, ...]:
    def number(value: int | None) -> str:
        return "-" if value is None else str(value)

    path = {True: "yes", False: f"no: {trace.slow_because}", None: "-"}[trace.fast_path]
    return (
        (key.static or "-") if first else "",
        ("dropped" if key.calls is None else str(key.calls)) if first else "",
        str(trace.number) + (" failed" if trace.failed else ""),
        number(trace.calls),
        f"{trace.trace_seconds:.4f}",
        f"{trace.lower_seconds:.4f}",
        f"{trace.compile_seconds:.4f}" + (f" ({trace.executables} x)" if trace.executables > 1 else ""),
        number(trace.equations),
        _bytes_text(sum(constant.bytes for constant in trace.constants)),
        path,
    )


def _bytes_text(size: int) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "B" else f"{size} B"
        size /= 1000  # type: ignore[assignment]
    return f"{size:.3g} GB"


def _plain(value: Any) -> Any:
    """Dataclasses and named tuples as dictionaries."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Constant):
        return value._asdict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _equations(jaxpr: Any) -> int:
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    count = len(jaxpr.eqns)
    for equation in jaxpr.eqns:
        for parameter in equation.params.values():
            for item in parameter if isinstance(parameter, (tuple, list)) else (parameter,):
                if is_jaxpr(item):
                    count += _equations(item)
    return count


_EFFECTS = {
    "DebugEffect": "jax.debug.print or callback",
    "OrderedDebugEffect": "ordered jax.debug.print or callback",
    "IOEffect": "io_callback",
    "OrderedIOEffect": "ordered io_callback",
    "ReadEffect": "refs",
    "WriteEffect": "refs",
    "AccumEffect": "refs",
}


def program_of(target: Any, record: Record) -> Any:
    """The jaxpr of a trace, from jax's cache; None if it is not there."""
    avals = [part.aval for part in record.snapshot.parts if part.key[0] == "array"]
    if target is None or record.failed or any(aval is None for aval in avals):
        return None
    try:
        return target.trace(*avals).jaxpr
    except Exception:  # not cached: the target refuses to run outside of a call
        return None


def _trace_report(target: Any, record: Record, calls: int | None, fun: Any) -> TraceReport:
    program = program_of(target, record)
    effects = sorted({_EFFECTS.get(type(e).__name__, type(e).__name__) for e in program.effects}) if program else []
    return TraceReport(
        record.number,
        site_text(record.site),
        record.reason,
        calls,
        record.seconds["trace"],
        record.seconds["lower"],
        record.seconds["compile"],
        record.compiled,
        record.failed,
        None if program is None else _equations(program),
        () if program is None else tuple(captured_constants(list(program.consts), fun)),
        None if program is None or record.compiled == 0 else not effects,
        ", ".join(effects),
    )


def _static_text(record: Record | None, varying: set[str]) -> str:
    if record is None:
        return ""
    pairs = zip(record.snapshot.paths, record.snapshot.parts, strict=True)
    texts = [f"{path}={part.text}" for path, part in pairs if path in varying and part.key[0] != "array"]
    return ", ".join(texts[:4]) + (", ..." if len(texts) > 4 else "")


def _varying(records: list[Record]) -> set[str]:
    """The paths at which keys differ."""
    if len(records) < 2:
        return set()
    keys: dict[str, set[Any]] = {}
    for record in records:
        for path, part in zip(record.snapshot.paths, record.snapshot.parts, strict=True):
            if part.key[0] != "array":
                keys.setdefault(path, set()).add((part.key, part.text))
    return {
        path
        for path, values in keys.items()
        if len(values) > 1 or sum(path in record.snapshot.paths for record in records) < len(records)
    }


_Use = tuple[Record, Any, int | None]  # a trace, its target, its calls


def _history_report(history: History, cache: _core.CallCache | None) -> FunctionReport:
    records = {record.number: record for record in history.records}
    fun = history.function()
    grouped: list[tuple[int | None, list[_Use]]] = []
    for calls, target, log in () if cache is None else cache.entries():
        known: list[_Use] = [(records.pop(number), target, n) for number, n in log if number in records]
        if len(log) == 1 and known and known[0][2] is None:
            known = [(known[0][0], target, calls)]
        if known:
            grouped.append((calls, known))
    for record in records.values():
        grouped.append((None, [(record, None, None)]))
    varying = _varying([traces[0][0] for _, traces in grouped])
    keys = tuple(
        KeyReport(
            _static_text(traces[0][0], varying),
            calls,
            tuple(_trace_report(target, record, n, fun) for record, target, n in traces),
        )
        for calls, traces in grouped
    )
    defined = "" if history.defined is None else site_text(history.defined)
    hits, misses = (None, None) if cache is None else cache.info()[2:4]
    return FunctionReport(history.name, defined, hits, misses, keys, _slow_nodes(history))


def _slow_nodes(history: History) -> tuple[SlowNode, ...]:
    counts: dict[str, tuple[int, float, str]] = {}
    latest = history.records[-1] if history.records else None
    for part in () if latest is None else latest.snapshot.parts:
        kind = part.refs[0]() if part.key[:2] == ("node", "registered") and part.refs else None
        if kind is not None:
            count = counts[part.text][0] + 1 if part.text in counts else 1
            counts[part.text] = (count, count * flatten_microseconds(kind), why_called(kind))
    return tuple(SlowNode(name, *found) for name, found in counts.items())


def function_report(self: Any) -> FunctionReport:
    """The report of one filter_jit function: `JitFunction.report`."""
    history = self._cache.history
    if history is None:
        _, _, hits, misses, _ = self._cache.info()
        return FunctionReport(self.__name__, "", hits, misses, (), ())
    return _history_report(history, self._cache)


def report() -> Report:
    """What every filter_jit function has cost that lives and has been traced.

    The seconds are jax's own, of `jax.monitoring`.

    Returns:
      A `Report`, which prints as a table for each function; `to_json()` gives it as data.

    Raises:
      Nothing.
    """
    living = {cache.history: cache for cache in _core.caches() if cache.history is not None}
    gone = [history for history in kept() if history.records and history not in living]
    reports = [_history_report(history, cache) for history, cache in living.items()]
    reports += [_history_report(history, None) for history in gone]
    return Report(tuple(sorted(reports, key=lambda function: -function.seconds)))
