"""Limits on traces: their errors, and where they are set for a block of code."""

import contextlib
import contextvars
from collections.abc import Generator
from typing import Any, TypeVar

_Value = TypeVar("_Value")


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


@contextlib.contextmanager
def during(variable: contextvars.ContextVar[_Value], value: _Value) -> Generator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def limited(wrapper: Any, counter: Any) -> contextlib.AbstractContextManager[None]:
    """Has the traces of a filter_jit wrapper counted, and limited, by another history too."""
    return during(counters, (*counters.get(), (wrapper, counter)))
