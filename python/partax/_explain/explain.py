"""explain, which reports each trace through the `partax` logger; the errors and warnings of traces."""

import contextlib
import contextvars
import logging
import os

from partax._pytree.call_site import is_of_library, site_text

_logger = logging.getLogger("partax")

_variable = os.environ.get("PARTAX_EXPLAIN", "").lower()
_switch = {"on": _variable not in ("", "0", "false", "off"), "libraries": _variable == "all"}


def explain(on: bool = True, *, libraries: bool = False) -> contextlib.AbstractContextManager[object]:
    """Report each trace of a partax function through the `partax` logger: the call, and what is new in it.

    Example:
      >>> import logging, sys
      >>> logging.getLogger("partax").addHandler(logging.StreamHandler(sys.stdout))
      >>> grow = partax.filter_jit(lambda batch: 2 * batch + 1)
      >>> with partax.explain():
      ...     _ = grow(jnp.ones(3)), grow(jnp.ones(4))
      <...>:2 <lambda>: trace 1, the first
      <...>:2 <lambda>: trace 2, because batch: float32[3] -> float32[4]

    Each trace is one warning, with its differences from the most similar recent one; "compiled again" is for arrays on
    another device. The environment variable `PARTAX_EXPLAIN=1` is for a whole run, `all` with libraries.

    Args:
      on: Whether to report from now on. Default: True.
      libraries: Whether to report calls inside libraries such as Equinox, Flax and diffrax too. Default: False.

    Returns:
      A context manager that restores the previous state. Without `with`, `explain(False)` switches the reports off.

    Raises:
      TypeError: `on` is not a bool, for example because `explain` is used as a decorator.

    See Also: The guide "When does a call retrace?".
    """
    if not isinstance(on, (bool, int)):
        raise TypeError(f"explain: found a `{type(on).__name__}`, expected True or False: `with partax.explain(): ...`")
    restore = contextlib.ExitStack()
    restore.callback(_switch.update, dict(_switch))
    _switch.update(on=bool(on), libraries=bool(libraries))
    return restore


def explaining() -> bool:
    return _switch["on"]


def report_line(site: tuple[str, int], text: str) -> None:
    """Report the outcome of a call; one from inside a library only with `libraries`."""
    if _switch["libraries"] or not is_of_library(site[0]):
        _logger.warning("%s %s", site_text(site), text)


class RetraceWarning(UserWarning):
    """The warning at the third trace that one static number, or one re-created function or object, has caused.

    Example:
      >>> import warnings
      >>> decay = partax.filter_jit(lambda weight, rate: weight * (1 - rate))
      >>> with warnings.catch_warnings(record=True, action="always") as caught:
      ...     _ = [decay(jnp.ones(3), i / 10) for i in range(10)]
      >>> print(caught[0].message)
      3 values of the static Python number `rate` are a trace of `<lambda>` each; pass jnp.asarray(rate), or ...
    """


class RetraceError(RuntimeError):
    """The error of a function that would be traced more often than it may be. Raised before it is traced and compiled.

    Example:
      >>> rise = partax.filter_jit(lambda x: x - 1, max_traces=1)
      >>> _ = rise(jnp.ones(3))
      >>> try:
      ...     rise(jnp.ones(4))
      ... except partax.RetraceError as error:
      ...     print(error)
      `<lambda>` would be traced once more than max_traces=1 allows, because x: float32[3] -> float32[4]
    """


RetraceWarning.__module__ = RetraceError.__module__ = "partax"  # where users find them

forbidden: contextvars.ContextVar[bool] = contextvars.ContextVar("partax_no_retrace", default=False)
