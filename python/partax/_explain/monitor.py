"""What jax tells of its work: its stages, put to the trace that they were for."""

from typing import TYPE_CHECKING, Any

import jax

from partax import _core
from partax._jax.private import is_before_compiling, stage_of
from partax._jit.ahead_of_time import record_at_work

if TYPE_CHECKING:
    from partax._explain.history import Record


def _on_duration(event: str, duration_secs: float, **_: Any) -> None:
    stage = stage_of(event)
    if stage is None:
        return
    record = _record_of_call(compiles=stage != "trace")
    if record is None:
        return
    if stage == "trace":
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
    record = history.compiling(*_core.describe_call())
    if record is not None:
        _core.set_record(record)
    return record


def listen() -> None:
    """Called once, when partax is imported."""
    jax.monitoring.register_event_duration_secs_listener(_on_duration)
    jax.monitoring.register_event_listener(_on_event)
