"""Reports of what functions have cost, by static key and trace: their data, and as a table."""

import dataclasses
import json
from typing import Any

from partax._pytree.short_text import angled, record_text
from partax._report.captured_arrays import Constant
from partax._report.table import Table, bytes_text, counted

_HEADINGS = (
    "static key", "calls", "trace", "calls", "trace s", "lower s", "compile s", "equations", "constants", "fast path",
)  # fmt: skip
_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class TraceReport:
    """What one trace has cost.

    Example:
      >>> @partax.filter_jit
      ... def total(x):
      ...     return x.sum()
      >>> _ = total(jnp.ones(3)), total(jnp.ones(4))
      >>> [(trace.number, trace.reason) for trace in total.report().traces]
      [(1, 'the first'), (2, 'x: float32[3] -> float32[4]')]

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

    __repr__ = record_text

    @property
    def seconds(self) -> float:
        """Trace, lowering and compile seconds together."""
        return self.trace_seconds + self.lower_seconds + self.compile_seconds


@dataclasses.dataclass(frozen=True)
class KeyReport:
    """One static key of a function.

    Example:
      >>> @partax.filter_jit
      ... def take(x, n):
      ...     return x[:n]
      >>> _ = take(jnp.ones(3), 1), take(jnp.ones(3), 2), take(jnp.ones(3), 2)
      >>> [(key.static, key.calls) for key in take.report().keys]
      [('n=2', 2), ('n=1', 1)]

    Attributes:
      static: the static values in which it differs from the function's other keys.
      calls: how many calls it has had; None if it has been dropped, which forgets them.
      traces: its traces.
    """

    static: str
    calls: int | None
    traces: tuple[TraceReport, ...]

    __repr__ = record_text


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """A program that an earlier process had stored, and a call has loaded in the place of a trace.

    Example:
      >>> fresh = partax.filter_jit(lambda x: x - 1)
      >>> fresh.report().loads
      ()

    Attributes:
      site: the call, such as `train.py:41`.
      seconds: how long it took.
      saves: how long the earlier process took to trace, lower and compile it.
    """

    site: str
    seconds: float
    saves: float

    __repr__ = record_text


def _to_json(self: Any, **options: Any) -> str:
    """The report as JSON.

    Example:
      >>> import json
      >>> double = partax.filter_jit(lambda x: 2 * x)
      >>> sorted(json.loads(double.report().to_json()))
      ['defined', 'hits', 'keys', 'loads', 'misses', 'name']
      >>> list(json.loads(partax.report().to_json()))
      ['functions']

    Args:
      **options: of `json.dumps`, such as `indent`.

    Returns:
      An object with the attributes of this class.
    """
    return json.dumps(dataclasses.asdict(self), **options)


@dataclasses.dataclass(frozen=True)
class FunctionReport:
    """What one function has cost. `str` gives a table.

    Example:
      >>> @partax.filter_jit
      ... def halve(x):
      ...     return x / 2
      >>> _ = halve(jnp.ones(3)), halve(jnp.ones(3))
      >>> report = halve.report()
      >>> report.name, report.hits, report.misses
      ('halve', 1, 1)

    Attributes:
      name: the function's name.
      defined: where, such as `train.py:12`.
      hits: calls that did not trace; None if the function is gone.
      misses: calls that did, likewise.
      keys: its static keys, the one used last first.
      loads: the stored programs that it has loaded.
    """

    name: str
    defined: str
    hits: int | None
    misses: int | None
    keys: tuple[KeyReport, ...]
    loads: tuple[LoadReport, ...] = ()

    @property
    def traces(self) -> tuple[TraceReport, ...]:
        """The traces of all keys, by number."""
        return tuple(sorted((trace for key in self.keys for trace in key.traces), key=lambda trace: trace.number))

    @property
    def seconds(self) -> float:
        """Trace, lowering and compile seconds of all traces."""
        return sum(trace.seconds for trace in self.traces)

    to_json = _to_json

    def __repr__(self) -> str:
        return angled(f"partax.FunctionReport of {_function_line(self)}")

    def __str__(self) -> str:
        return str(_function_table(self))


@dataclasses.dataclass(frozen=True)
class Report:
    """What all functions have cost. `str` gives a table for each.

    Example:
      >>> double = partax.filter_jit(lambda x: 2 * x)
      >>> _ = double(jnp.ones(3))
      >>> costliest = partax.report().functions[0]
      >>> costliest.seconds > 0
      True

    Attributes:
      functions: those that have been traced, also the latest that are gone, the costliest first.
    """

    functions: tuple[FunctionReport, ...]

    to_json = _to_json

    def __repr__(self) -> str:
        traces = sum(len(function.traces) for function in self.functions)
        counts = f"{counted(len(self.functions), 'function')}, {counted(traces, 'trace')}"
        seconds = sum(function.seconds for function in self.functions)
        return angled(f"partax.Report: {counts}, {seconds:.3g} s to trace and compile")

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.functions)) or "no partax function has been traced"


for _public in (TraceReport, KeyReport, LoadReport, FunctionReport, Report):
    _public.__module__ = "partax"  # where users find them, and pickles too


def _function_table(report: FunctionReport) -> Table:
    rows = tuple(_row(key, trace, i == 0) for key in report.keys for i, trace in enumerate(key.traces))
    notes: list[str] = []
    for trace in report.traces:
        notes.append(f"  trace {trace.number} at {trace.site}: {trace.reason}")
        if trace.slow_because:
            notes.append(f"    not on jax's fast path because of {trace.slow_because}")
        for it in trace.constants[:_SHOWN]:
            notes.append(f"    captured {it.name or 'an array without a name'}: {it.type}, {bytes_text(it.bytes)}")
    notes += [f"  loaded at {it.site} in {it.seconds:.2g} s (saves {it.saves:.2g} s)" for it in report.loads]
    return Table(_HEADINGS, (rows,), frozenset({0, 9}), _function_line(report), tuple(notes), indent=2)


def _function_line(report: FunctionReport) -> str:
    calls = "gone" if report.hits is None or report.misses is None else f"{report.hits + report.misses} calls"
    loads = f"{len(report.loads)} loaded, " if report.loads else ""
    head = f"{report.name} ({report.defined}): {calls}, {len(report.traces)} traces, {loads}"
    return head + f"{report.seconds:.3g} s to trace and compile"


def _row(key: KeyReport, trace: TraceReport, is_first: bool) -> tuple[str, ...]:
    of_key = (key.static or "-", "dropped" if key.calls is None else str(key.calls)) if is_first else ("", "")
    return (
        *of_key,
        f"{trace.number}{' failed' if trace.failed else ''}",
        "-" if trace.calls is None else str(trace.calls),
        f"{trace.trace_seconds:.4f}",
        f"{trace.lower_seconds:.4f}",
        f"{trace.compile_seconds:.4f}" + (f" ({trace.executables} x)" if trace.executables > 1 else ""),
        "-" if trace.equations is None else str(trace.equations),
        bytes_text(sum(constant.bytes for constant in trace.constants)),
        {True: "yes", False: "no", None: "-"}[trace.fast_path],
    )
