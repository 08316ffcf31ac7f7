"""Gives the wrapper its `doctor`, and reports their page. What examines a program is imported when first asked for."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from partax._core import JitFunction
from partax._report import page

if TYPE_CHECKING:
    from partax._doctor.diagnosis import Diagnosis
    from partax._report.report import Report


def _doctor(self: JitFunction[..., Any], /, *args: Any, **kwargs: Any) -> "Diagnosis":
    """Reads the program of a call before it is compiled: `partax.doctor` of this function.

    Example:
      >>> table = jnp.zeros((1000, 1000))
      >>> row = partax.filter_jit(lambda i: table[i])
      >>> [(finding.kind, finding.severity) for finding in row.doctor(jnp.int32(0)).findings]
      [('constant', 'medium')]

    Args:
      *args, **kwargs: the arguments of the call, and the options of `partax.doctor`.

    Returns:
      The `Diagnosis`.

    Raises:
      TypeError: the function raises when it is traced; the cause is its own exception.
    """
    from partax._doctor.doctor import doctor

    return doctor(self, *args, **kwargs)


def _write_report(path: str | Path, report: "Report") -> None:
    from partax._doctor.page import write_page

    write_page(path, (), report)


def install() -> None:
    """Called once, when partax is imported."""
    page.writer = _write_report
    JitFunction.doctor = _doctor  # pyright: ignore[reportAttributeAccessIssue] - the stub has it as a method
