"""What jax tells of its work: its stages, put to the trace that they were for."""

import contextlib
import contextvars
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from jax.core import Tracer

from partax import _core
from partax._jax.private import function_name, is_before_compiling, stage_of
from partax._jit.record_at_work import record_at_work
from partax._pytree.spec_data import details
from partax._report.explain import during

if TYPE_CHECKING:
    from partax._report.snapshot import Record

_watcher: contextvars.ContextVar[Callable[[str], None] | None] = contextvars.ContextVar("partax_watcher", default=None)


def watching_traces(seen: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
    """Calls `seen` with the name of each function that jax has traced in this block, before it is compiled."""
    if not _tells_traces():
        raise RuntimeError("this jax does not tell when it traces a function, so the traces cannot be limited")
    return during(_watcher, seen)


@functools.cache
def _tells_traces() -> bool:
    heard: list[str] = []
    with during(_watcher, heard.append):
        jax.jit(lambda x: x).trace(jax.ShapeDtypeStruct((), "float32"))
    return bool(heard)


def _on_duration(event: str, duration_secs: float, **kwargs: Any) -> None:
    stage = stage_of(event)
    if stage is None:
        return
    watcher = _watcher.get()
    if watcher is not None and stage == "trace":
        watcher(function_name(kwargs))
    record = _record_of_call(compiles=stage != "trace")
    if record is None:
        return
    if stage == "trace":
        record.measured = True
        # With donation jax asks for the trace once more, and gets it at once.
        record.seconds["trace"] = max(record.seconds["trace"], duration_secs)
    else:
        record.seconds[stage] += duration_secs
        record.compiled += stage == "compile"


def _on_event(event: str, **_: Any) -> None:
    if is_before_compiling(event):
        _record_of_call()


def _record_of_call(compiles: bool = True) -> "Record | None":
    """The record that jax's work now is for, if it is for a target of ours and not for what its function calls. Without
    `compiles` that work may be a trace: jax 0.9 also tells of one that it only looks up.
    """
    under_way = _core.call_under_way()
    if under_way is None:
        return record_at_work.get()
    history, record = under_way
    if record is not None or history is None or not compiles:
        return record
    # The call found its trace: it is compiled again, or for the first time after `lower` or a trace inside another one.
    described, values = _core.describe_call()
    snapshot = history.take(details(described), values, values)
    is_transformed = any(isinstance(value, Tracer) for value in values)  # which has made another program of it
    record = history.traced_like(snapshot) if is_transformed else history.compiling(snapshot)
    if record is not None:
        _core.set_record(record)
    return record


def listen() -> None:
    jax.monitoring.register_event_duration_secs_listener(_on_duration)
    jax.monitoring.register_event_listener(_on_event)
