"""Limits on tracing, for tests and for production: no step may take minutes because something is traced again."""

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Generator
from typing import Any, ParamSpec, TypeVar, overload

import jax

from partax import _core
from partax._jax.private import under_trace
from partax._jit.options import check_max_traces
from partax._pytree.key_details import VALUE, Detail, details
from partax._pytree.short_text import wrapper_text
from partax._report.history import History
from partax._report.limits import forbidden, limited
from partax._report.monitor import watching_traces
from partax._report.reasons import Occasion
from partax._report.snapshot import Snapshot

__all__ = ["assert_max_traces", "get_num_traces", "no_retrace"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextlib.contextmanager
def no_retrace() -> Generator[None]:
    """Forbids partax functions to be traced in a block, also for the first time.

    Example:
      >>> step = partax.filter_jit(lambda x: x + 1)
      >>> _ = step(jnp.ones(3))
      >>> with partax.debug.no_retrace():
      ...     y = step(jnp.ones(3))
      >>> y
      Array([2., 2., 2.], dtype=float32)

    Returns:
      A context manager. It holds in this thread, or in this asynchronous task.

    Raises:
      RetraceError: in the block, a function would be traced, or compiled for another placement of its arrays. The
        message says what is new. It is raised before the function is traced and compiled.
    """
    token = forbidden.set(True)
    try:
        yield
    finally:
        forbidden.reset(token)


@overload
def assert_max_traces(fun: Callable[_P, _R], *, max_traces: int | None) -> Callable[_P, _R]: ...
@overload
def assert_max_traces(
    fun: None = None, *, max_traces: int | None
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...
def assert_max_traces(fun: Any = None, *, max_traces: int | None) -> Any:
    """Limits how often a callable is traced, wherever it is called.

    Example:
      >>> step = partax.debug.assert_max_traces(jax.jit(lambda x: x * 3), max_traces=1)
      >>> _ = step(jnp.ones(2))
      >>> try:
      ...     step(jnp.ones(3))
      ... except partax.RetraceError as error:
      ...     print(error)
      `<lambda>` would be traced once more than max_traces=1 allows, because x: float32[2] -> float32[3]

    It may stand inside a transformation, `filter_jit(assert_max_traces(f, max_traces=1))`, or around a compiled
    function, `assert_max_traces(filter_jit(f), max_traces=1)`, of partax, `jax.jit` or Equinox. A call that is neither
    traced nor of a compiled function does not count.

    Args:
      fun: any callable. If it is a pytree, so is the result. Without it, a decorator, also of methods.
      max_traces: how many traces there may be; None for any number, of which `get_num_traces` tells.

    Returns:
      A callable that does what `fun` does.

    Raises:
      RetraceError: when called, it would be traced once more. The message says what is new. It is raised before `fun`
        is traced and compiled; for compiled functions of others than partax, before they are compiled.
      TypeError: `fun` is not callable.
      ValueError: `max_traces` is no number of traces.
    """
    check_max_traces(max_traces)
    if fun is None:
        return functools.partial(_limit, max_traces=max_traces)
    return _limit(fun, max_traces)


def get_num_traces(fun: Callable[..., Any]) -> int:
    """How often a callable inside `assert_max_traces` has been traced so far.

    Example:
      >>> counted = partax.debug.assert_max_traces(lambda x: x * 3, max_traces=None)
      >>> step = partax.filter_jit(counted)
      >>> _ = step(jnp.ones(2)), step(jnp.ones(3)), step(jnp.ones(3))
      >>> partax.debug.get_num_traces(step)
      2

    Args:
      fun: what `assert_max_traces` has returned, or anything around it that leads to it: a `filter_jit`, `jax.jit` or
        `eqx.filter_jit`, a partial, a method. Of several limits around each other the outermost one is asked.

    Returns:
      The number of traces, those that have raised an exception included, those that were refused not.

    Raises:
      ValueError: there is no `assert_max_traces` in `fun`.
    """
    found: Any = fun
    for _ in range(_MAX_WRAPPERS):
        if isinstance(found, _Limited):
            return found._history.count
        inner = (getattr(found, name, None) for name in ("__func__", "__wrapped__", "func"))
        found = next((one for one in inner if callable(one)), None)
    raise ValueError(f"found {fun!r}, expected a callable that `partax.debug.assert_max_traces` has returned")


_MAX_WRAPPERS = 100


def _limit(fun: Any, max_traces: int | None) -> "_Limited":
    if not callable(fun):
        raise TypeError(f"found a `{type(fun).__name__}`, expected a callable whose traces are counted")
    name = getattr(fun, "__name__", None)
    history = History(name if isinstance(name, str) else type(fun).__name__, None, max_traces, 0, False, nested=True)
    return _Limited(fun, history)


class _Limited:
    """What `assert_max_traces` returns: a pytree of the callable."""

    _is_called_as_wrapped = True  # `call_parameters` binds the arguments of a call by the callable's own parameters

    def __init__(self, fun: Callable[..., Any], history: History):
        functools.update_wrapper(self, fun, updated=())
        self._fun = fun
        self._history = history

    def __repr__(self) -> str:
        return wrapper_text("debug.assert_max_traces", self)

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if under_trace():
            return self._traced_call(args, kwargs)
        if isinstance(self._fun, _core.JitFunction):
            with limited(self._fun, self._history):
                return self._fun(*args, **kwargs)
        if hasattr(self._fun, "lower"):  # a compiled function of others
            with watching_traces(lambda name: self._foreign_trace(name, args, kwargs)):
                return self._fun(*args, **kwargs)
        return self._fun(*args, **kwargs)

    def _traced_call(self, args: Any, kwargs: Any) -> Any:
        record = self._history.begin(_snapshot(self._history, self._fun, args, kwargs), Occasion())
        failed = True
        try:
            result = self._fun(*args, **kwargs)
            failed = False
            return result
        finally:
            self._history.end(record, failed)

    def _foreign_trace(self, name: str, args: Any, kwargs: Any) -> None:
        if name == self._history.name:
            record = self._history.begin(_snapshot(self._history, self._fun, args, kwargs), Occasion())
            self._history.end(record, False)


def _snapshot(history: History, fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Snapshot:
    described: list[Detail] = []
    values: list[Any] = []
    for name, value in _named(fun, args, kwargs):
        try:
            data, leaves = _core.describe_tree(value, name)
        except (TypeError, ValueError, RecursionError):  # not one that partax could take; the trace goes on
            described.append((name, VALUE, type(value)))
            continue
        described += details(data)
        values += leaves
    return history.take(described, values, values)


def _named(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """The arguments of a call by the names that the callable gives them."""
    try:
        bound = inspect.signature(fun).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return [*((f"args[{i}]", value) for i, value in enumerate(args)), *kwargs.items()]
    bound.apply_defaults()
    named: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named += [(f"{name}[{i}]", item) for i, item in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named += value.items()
        else:
            named.append((name, value))
    return named


def _flatten(limited_fun: Any) -> tuple[tuple[Any], History]:
    return (limited_fun._fun,), limited_fun._history


def _unflatten(history: History, children: Any) -> Any:
    return _Limited(children[0], history)


jax.tree_util.register_pytree_node(_Limited, _flatten, _unflatten)
