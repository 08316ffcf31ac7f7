"""Reports of what functions have cost, by static key and trace: their data, and as tables."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from partax._explain import page, views
from partax._explain.captured_arrays import Constant
from partax._tree.short_text import angled, record_text
from partax._views.table import html_of, text_of


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
class SlowNode:
    """A node type that is flattened by a registered Python function, in each call.

    Example:
      >>> class Box:
      ...     def __init__(self, x):
      ...         self.x = x
      >>> jax.tree_util.register_pytree_node(Box, lambda box: ((box.x,), None), lambda _, parts: Box(*parts))
      >>> unbox = partax.filter_jit(lambda box: box.x)
      >>> _ = unbox(Box(jnp.ones(3)))
      >>> [(node.type, node.count) for node in unbox.report().slow_nodes]
      [('Box', 1)]

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

    __repr__ = record_text


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

        Example:
          >>> import json
          >>> double = partax.filter_jit(lambda x: 2 * x)
          >>> sorted(json.loads(double.report().to_json()))
          ['defined', 'hits', 'keys', 'misses', 'name', 'slow_nodes']

        Args:
          **options: of `json.dumps`, such as `indent`.

        Returns:
          An object with the attributes of this class.
        """
        return json.dumps(_plain(self), **options)

    def __repr__(self) -> str:
        return angled(f"partax.FunctionReport of {views.function_line(self)}")

    def __str__(self) -> str:
        return text_of([views.function_table(self)], sys.stdout)

    def __rich__(self) -> Any:
        from partax._views.rich_table import RichTables

        return RichTables([views.function_table(self)])

    def _repr_html_(self) -> str:
        return html_of([views.function_table(self)])


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
      functions: those that live and have been traced, the costliest first.
    """

    functions: tuple[FunctionReport, ...]

    def to_json(self, **options: Any) -> str:
        """The report as JSON.

        Example:
          >>> import json
          >>> list(json.loads(partax.report().to_json()))
          ['functions']

        Args:
          **options: of `json.dumps`, such as `indent`.

        Returns:
          An object with the list `functions`.
        """
        return json.dumps(_plain(self), **options)

    def html(self, path: str | Path) -> None:
        """Writes one HTML file that needs no network: the timeline of this process, and why each trace was made.

        Example:
          >>> import os
          >>> partax.report().html("report.html")
          >>> os.path.exists("report.html")
          True

        Args:
          path: the file, which is replaced as a whole or left as it was.

        Raises:
          ImportError: `partax[doctor]` is not installed.
          OSError: the file cannot be written.
        """
        page.writer(path, self)

    def __repr__(self) -> str:
        return angled(f"partax.Report: {views.report_line(self)}")

    def __str__(self) -> str:
        return text_of(views.report_tables(self), sys.stdout)

    def __rich__(self) -> Any:
        from partax._views.rich_table import RichTables

        return RichTables(views.report_tables(self))

    def _repr_html_(self) -> str:
        return html_of(views.report_tables(self))


for _public in (TraceReport, KeyReport, SlowNode, FunctionReport, Report):
    _public.__module__ = "partax"  # where users find them, and pickles too


def _plain(value: Any) -> Any:
    """Dataclasses and named tuples as dictionaries."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Constant):
        return value._asdict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
