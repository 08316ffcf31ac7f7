"""Reports of what functions have cost, by static key and trace: their data, and as a table."""

import dataclasses
import json
from typing import Any

from partax._pytree.short_text import counted, printable, record_text, table_lines


@dataclasses.dataclass(frozen=True)
class TraceReport:
    """The cost of one trace.

    Example:
      >>> total = partax.filter_jit(lambda x: x.sum())
      >>> _ = total(jnp.ones(3)), total(jnp.ones(4))
      >>> [(trace.number, trace.reason) for trace in total.report().traces]
      [(1, 'the first'), (2, 'x: float32[3] -> float32[4]')]

    Attributes:
      number: The number of the trace among those of the function, from 1.
      site: The call that traced, such as `train.py:41`.
      reason: Why the function was traced.
      static: The static values of its key, without those of all keys of the function.
      calls: The number of calls that used it; None if unknown, for example if it was dropped.
      trace_seconds: How long the function ran under tracing, with all that it calls; 0 inside another trace.
      lower_seconds: How long JAX lowered it.
      compile_seconds: How long XLA compiled it.
      executables: How often it was compiled: for other placements of its arrays, or under transformations.
      failed: Whether the function raised an exception.
    """

    number: int
    site: str
    reason: str
    static: str
    calls: int | None
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    executables: int
    failed: bool

    __repr__ = record_text

    @property
    def seconds(self) -> float:
        """The sum of the trace, lowering and compile seconds."""
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    def _row(self) -> tuple[str, ...]:
        number, calls = f"{self.number}{' failed' if self.failed else ''}", "-" if self.calls is None else self.calls
        seconds = [f"{stage:.4f}" for stage in (self.trace_seconds, self.lower_seconds, self.compile_seconds)]
        executables = f" ({self.executables} x)" if self.executables > 1 else ""
        return number, self.static or "-", str(calls), *seconds[:2], seconds[2] + executables


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """A stored program of an earlier process that a call has loaded instead of tracing.

    Example:
      >>> fresh = partax.filter_jit(lambda x: x - 1)
      >>> fresh.report().loads
      ()

    Attributes:
      site: The call, such as `train.py:41`.
      seconds: How long it took to load.
      saves: How long the earlier process took to trace, lower and compile it.
    """

    site: str
    seconds: float
    saves: float

    __repr__ = record_text


def _to_json(self: Any, **options: Any) -> str:
    """Return the report as JSON.

    Example:
      >>> partax.filter_jit(jnp.arcsinh).report().to_json()
      '{"name": "arcsinh", "defined": "", "hits": 0, "misses": 0, "traces": [], "loads": []}'

    Args:
      **options: Same as in `json.dumps`, such as `indent`.

    Returns:
      An object with the attributes of this class.
    """
    return json.dumps(dataclasses.asdict(self), **options)


@dataclasses.dataclass(frozen=True)
class FunctionReport:
    """The cost of one function. `str` returns a table.

    Example:
      >>> halve = partax.filter_jit(lambda x: x / 2)
      >>> _ = halve(jnp.ones(3)), halve(jnp.ones(3))
      >>> halve.report().hits, halve.report().misses
      (1, 1)

    Attributes:
      name: The name of the function.
      defined: The file and line of its definition, such as `train.py:12`.
      hits: The number of calls that did not trace; None if the function is deleted.
      misses: The number of calls that traced or loaded; None if the function is deleted.
      traces: Its traces, the latest 256, in order.
      loads: The stored programs that it has loaded. Default: none.
    """

    name: str
    defined: str
    hits: int | None
    misses: int | None
    traces: tuple[TraceReport, ...]
    loads: tuple[LoadReport, ...] = ()

    @property
    def seconds(self) -> float:
        """The sum of the trace, lowering and compile seconds of all traces."""
        return sum(trace.seconds for trace in self.traces)

    to_json = _to_json

    __repr__ = record_text

    def __str__(self) -> str:
        calls = "gone" if self.hits is None or self.misses is None else counted(self.hits + self.misses, "call")
        loads = f"{len(self.loads)} loaded, " if self.loads else ""
        head = f"{self.name} ({self.defined}): {calls}, {counted(len(self.traces), 'trace')}, {loads}"
        lines = [f"{head}{self.seconds:.3g} s to trace and compile"]
        headings = ("trace", "static key", "calls", "trace s", "lower s", "compile s")
        lines += table_lines([headings, *(trace._row() for trace in self.traces)], {1})
        lines += [f"trace {trace.number} at {trace.site}: {trace.reason}" for trace in self.traces]
        lines += [f"loaded at {load.site} in {load.seconds:.2g} s (saves {load.saves:.2g} s)" for load in self.loads]
        return "\n  ".join(map(printable, lines))


@dataclasses.dataclass(frozen=True)
class Report:
    """The cost of all functions. `str` returns a table for each.

    Example:
      >>> double = partax.filter_jit(lambda x: 2 * x)
      >>> _ = double(jnp.ones(3))
      >>> partax.report().functions[0].seconds > 0
      True

    Attributes:
      functions: The functions that have been traced, including the latest deleted ones, the costliest first.
    """

    functions: tuple[FunctionReport, ...]

    to_json = _to_json

    __repr__ = record_text

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.functions)) or "no partax function has been traced"


for _public in (TraceReport, LoadReport, FunctionReport, Report):
    _public.__module__ = "partax.reports"  # where users find them, and pickles too
