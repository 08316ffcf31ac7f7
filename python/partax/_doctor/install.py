"""Gives the wrapper its `doctor`, which is imported when it is called."""

from typing import TYPE_CHECKING, Any

from partax._core import JitFunction

if TYPE_CHECKING:
    from partax._doctor.diagnosis import Diagnosis


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


def install() -> None:
    """Called once, when partax is imported."""
    JitFunction.doctor = _doctor  # type: ignore[method-assign]
