"""Gives the wrapper its `report`, and listens to jax. What only a report needs is imported then."""

from typing import TYPE_CHECKING, Any

from partax._core import JitFunction
from partax._explain import monitor

if TYPE_CHECKING:
    from partax._explain.results import FunctionReport


def _report(self: JitFunction[..., Any]) -> "FunctionReport":
    """What this function has cost: per static key and trace, the calls and the seconds.

    Example:
      >>> @partax.filter_jit
      ... def power(x, exponent):
      ...     return x**exponent
      >>> _ = power(jnp.ones(3), 2), power(jnp.ones(4), 2)
      >>> [trace.reason for trace in power.report().traces]
      ['the first', 'x: float32[3] -> float32[4]']

    Wrappers of the same callable with the same options share their traces, and so the report.

    Returns:
      A `partax.reports.FunctionReport`, which prints as a table.
    """
    from partax._explain.function_reports import function_report

    return function_report(self)


def install() -> None:
    """Called once, when partax is imported."""
    JitFunction.report = _report  # type: ignore[method-assign]
    monitor.listen()
