"""Limits on tracing, for tests and for production: no step may take minutes because something is traced again."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from partax._explain.description import describe
from partax._explain.explain import forbidden
from partax._explain.history import History, Record
from partax._jax.private import under_trace
from partax._jit.at_work import during
from partax._jit.options import check_max_traces
from partax._transforms.wrapper import Transformed, check_callable, names_of_arguments, transformation

__all__ = ["assert_max_traces", "forbid_tracing", "get_num_traces"]


def forbid_tracing() -> contextlib.AbstractContextManager[None]:
    """Forbid partax functions to trace in a block, including for the first time.

    Example:
      >>> step = partax.filter_jit(lambda x: x + 1)
      >>> _ = step(jnp.ones(3))
      >>> with partax.debug.forbid_tracing():
      ...     y = step(jnp.ones(3))
      >>> y
      Array([2., 2., 2.], dtype=float32)

    Returns:
      A context manager, for this thread or asynchronous task.

    Raises:
      RetraceError: In the block: a function would be traced, or compiled for another placement of its arrays.

    See Also: The guide "When does a call retrace?".
    """
    return during(forbidden, True)


@transformation
def assert_max_traces(fun: Any = None, *, max_traces: int | None) -> Any:
    """Limit how often a callable inside a transformation is traced, by all its callers together.

    Example:
      >>> step = jax.jit(partax.debug.assert_max_traces(lambda x: x * 3, max_traces=1))
      >>> _ = step(jnp.ones(2))
      >>> try:
      ...     step(jnp.ones(3))
      ... except partax.RetraceError as error:
      ...     print(error)
      `<lambda>` would be traced once more than max_traces=1 allows, because x: float32[2] -> float32[3]

    Args:
      fun: Any callable that is not compiled itself; a pytree stays a pytree. Default: None, which returns a decorator.
      max_traces: The largest number of traces, or None for any number, which `get_num_traces` returns.

    Returns:
      A callable that does what `fun` does.

    Raises:
      TypeError, ValueError: `fun` is not callable, or it is compiled; or `max_traces` is not a number of traces.
      RetraceError: When called: `fun` is about to be traced once more than that. The message says what is new.

    See Also: The guide "When does a call retrace?".
    """
    check_max_traces(max_traces)
    if fun is None:
        return functools.partial(assert_max_traces, max_traces=max_traces)
    check_callable(fun, "debug.assert_max_traces")
    if hasattr(fun, "lower"):
        raise TypeError(f"debug.assert_max_traces: found {fun!r}, expected one that is not compiled yet")
    name = getattr(fun, "__name__", None)
    return _Limited(fun, History(name if isinstance(name, str) else type(fun).__name__, max_traces))


def get_num_traces(fun: Callable[..., Any]) -> int:
    """Count the traces so far of a callable inside `assert_max_traces`.

    Example:
      >>> counted = partax.debug.assert_max_traces(lambda x: x * 3, max_traces=None)
      >>> step = partax.filter_jit(counted)
      >>> _ = step(jnp.ones(2)), step(jnp.ones(3)), step(jnp.ones(3))
      >>> partax.debug.get_num_traces(step)
      2

    Args:
      fun: The result of `assert_max_traces`, or a wrapper around it: a compiled function, a partial, a method.

    Returns:
      The number of traces, also of those that raised an exception, without those that were refused.

    Raises:
      ValueError: `fun` does not contain an `assert_max_traces`.

    See Also: The guide "When does a call retrace?".
    """
    wrapper: Any = fun
    for _ in range(100):  # a mock has every attribute
        if isinstance(wrapper, _Limited):
            return wrapper._options[0].count
        inner = (getattr(wrapper, name, None) for name in ("__func__", "__wrapped__", "func"))
        wrapper = next(filter(callable, inner), None)
    raise ValueError(f"found {fun!r}, expected a callable that `partax.debug.assert_max_traces` has returned")


class _Limited(Transformed[..., Any]):
    _name = "debug.assert_max_traces"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        fun, history = self.__wrapped__, self._options[0]
        if not under_trace():
            return fun(*args, **kwargs)
        names = names_of_arguments(fun, len(args))
        record = Record(describe({**dict(zip(names, args, strict=True)), **kwargs}))
        history.begin(record)
        failed = True
        try:
            result = fun(*args, **kwargs)
            failed = False
            return result
        finally:
            record.end(failed)
