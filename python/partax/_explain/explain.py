"""explain, the switch by which each trace is reported through the `partax` logger; limits on traces, their errors."""

import contextvars
import logging
import os
from typing import Any

from partax._pytree.call_site import is_of_library, site_text

_logger = logging.getLogger("partax")


class _Switch:
    """Whether traces are explained, and how it was before: what `explain` returns."""

    on = os.environ.get("PARTAX_EXPLAIN", "").lower() not in ("", "0", "false", "off")
    libraries = os.environ.get("PARTAX_EXPLAIN", "").lower() == "all"

    def __init__(self, on: bool, libraries: bool):
        self._before = _Switch.on, _Switch.libraries
        _Switch.on, _Switch.libraries = on, libraries

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        _Switch.on, _Switch.libraries = self._before


def explain(on: bool = True, *, libraries: bool = False) -> _Switch:
    """Reports each trace of a partax function through the `partax` logger: where it was called, and what is new.

    Example:
      >>> import logging, sys
      >>> logging.getLogger("partax").addHandler(logging.StreamHandler(sys.stdout))
      >>> grow = partax.filter_jit(lambda batch: 2 * batch + 1)
      >>> with partax.explain():
      ...     _ = grow(jnp.ones(3)), grow(jnp.ones(4))
      <...>:2 <lambda>: trace 1, the first
      <...>:2 <lambda>: trace 2, because batch: float32[3] -> float32[4]

    One line for each trace, at the level of a warning: what differs from the most similar one of the latest, with paths
    from your own arguments. A line "compiled again" is of a call that found its trace but no executable, as when
    an array is on another device. The environment variable `PARTAX_EXPLAIN=1` does it for a whole run, `all` with those
    inside libraries. A call that neither traces nor compiles costs the same.

    Args:
      on: whether to report from now on.
      libraries: whether what Equinox, Flax, diffrax and other such libraries call inside themselves is reported
        too, as the checks that diffrax compiles under `accelerate()`.

    Returns:
      A context manager that, when left, sets things back. `with partax.explain(): ...` explains a block;
      `partax.explain()` and `partax.explain(False)` are a switch.

    Raises:
      TypeError: `on` is neither, as where it is used as a decorator.
    """
    if not isinstance(on, (bool, int)):
        raise TypeError(f"explain: found a `{type(on).__name__}`, expected True or False: `with partax.explain(): ...`")
    return _Switch(bool(on), bool(libraries))


def explaining() -> bool:
    return _Switch.on


def report_line(site: tuple[str, int], text: str) -> None:
    """Reports what became of a call; what a library has called for itself only where that is asked for."""
    if _Switch.libraries or not is_of_library(site[0]):
        _logger.warning("%s %s", site_text(site), text)


class RetraceWarning(UserWarning):
    """A static Python number has made a function be traced again and again.

    Example:
      >>> import warnings
      >>> decay = partax.filter_jit(lambda weight, rate: weight * (1 - rate))
      >>> with warnings.catch_warnings(record=True) as caught:
      ...     warnings.simplefilter("always")
      ...     _ = [decay(jnp.ones(3), i / 10) for i in range(10)]
      >>> print(caught[0].message)
      3 values of the static Python number `rate` are a trace of `<lambda>` each; pass jnp.asarray(rate), or ...
    """


class RetraceError(RuntimeError):
    """A function would be traced more often than it may be. Raised before it is traced and compiled.

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
"""Whether no partax function may be traced now."""

counters: contextvars.ContextVar[tuple[tuple[Any, Any], ...]] = contextvars.ContextVar("partax_limited", default=())
"""Wrappers, each with a further `History` by which its traces are counted now."""
