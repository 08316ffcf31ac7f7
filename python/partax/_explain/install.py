"""Connects this package with the wrapper and with jax. What only a trace or a report needs is imported then."""

from typing import Any

from partax._core import JitFunction
from partax._explain import monitor


def _report(self: JitFunction[..., Any]) -> Any:
    """What this function has cost: per static key and trace, the calls, the seconds, the size of the program.

    Wrappers of the same callable with the same options share their traces, and so the report.

    Returns:
      A `FunctionReport`, which prints as a table.
    """
    from partax._explain.report import function_report

    return function_report(self)


def install() -> None:
    """Gives the wrapper its `report`, and listens to jax. Called once, when partax is imported."""
    JitFunction.report = _report  # pyright: ignore[reportAttributeAccessIssue] - the stub has it as a method
    monitor.listen()
