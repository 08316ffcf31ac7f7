"""Reports of what functions have cost, by static key and trace: their data, and as a table."""

import dataclasses
import json
from typing import Any

from partax._pytree.short_text import printable, record_text
from partax._pytree.table import counted, table_lines

_HEADINGS = ("static key", "calls", "trace", "calls", "trace s", "lower s", "compile s")


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
      trace_seconds: how long the function ran under tracing, with all that it calls; 0 inside another trace.
      lower_seconds: how long jax took to lower it.
      compile_seconds: how long XLA took to compile it.
      executables: how often it was compiled: for other placements of its arrays, or under transformations.
      failed: whether the function raised an exception.
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
    """A program that an earlier process had stored, and that a call has loaded instead of tracing.

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
      misses: calls that did; None if the function is gone.
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

    __repr__ = record_text

    def __str__(self) -> str:
        calls = "gone" if self.hits is None or self.misses is None else counted(self.hits + self.misses, "call")
        loads = f"{len(self.loads)} loaded, " if self.loads else ""
        head = f"{self.name} ({self.defined}): {calls}, {counted(len(self.traces), 'trace')}, {loads}"
        rows = [_HEADINGS, *(_row(key, trace, i == 0) for key in self.keys for i, trace in enumerate(key.traces))]
        lines = [f"{head}{self.seconds:.3g} s to trace and compile", *table_lines(rows, {0})]
        lines += [f"trace {trace.number} at {trace.site}: {trace.reason}" for trace in self.traces]
        lines += [f"loaded at {load.site} in {load.seconds:.2g} s (saves {load.saves:.2g} s)" for load in self.loads]
        return "\n  ".join(map(printable, lines))


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

    __repr__ = record_text

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.functions)) or "no partax function has been traced"


for _public in (TraceReport, KeyReport, LoadReport, FunctionReport, Report):
    _public.__module__ = "partax.reports"  # where users find them, and pickles too


def _row(key: KeyReport, trace: TraceReport, is_first: bool) -> tuple[str, ...]:
    of_key = (key.static or "-", "dropped" if key.calls is None else str(key.calls)) if is_first else ("", "")
    return (
        *of_key,
        f"{trace.number}{' failed' if trace.failed else ''}",
        "-" if trace.calls is None else str(trace.calls),
        f"{trace.trace_seconds:.4f}",
        f"{trace.lower_seconds:.4f}",
        f"{trace.compile_seconds:.4f}" + (f" ({trace.executables} x)" if trace.executables > 1 else ""),
    )
