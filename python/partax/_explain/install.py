"""The `report` of wrappers, imported when it is called, and the traces of the stages that JAX reports."""

from typing import Any

import jax

from partax import _core
from partax._jax.private import STAGE_OF
from partax._jit.at_work import at_work
from partax._jit.observers import observers


def _report(self: _core.JitFunction[..., Any]) -> Any:
    """Return the cost of this function: for each static key and trace, the calls and the seconds.

    Example:
      >>> power = partax.filter_jit(lambda x, exponent: x**exponent)
      >>> _ = power(jnp.ones(3), 2), power(jnp.ones(4), 2)
      >>> [trace.reason for trace in power.report().traces]
      ['the first', 'x: float32[3] -> float32[4]']

    Returns:
      A `partax.reports.FunctionReport`, which prints as a table. Equal wrappers of a callable share it.
    """
    from partax._explain.function_reports import function_report

    return function_report(self)


def _on_duration(event: str, duration_secs: float, **_: Any) -> None:
    stage = STAGE_OF.get(event)
    if stage is not None and (record := _record_of_call()) is not None:
        total = record.seconds[stage]  # with donation jax asks for the trace once more, and gets it at once
        record.seconds[stage] = max(total, duration_secs) if stage == "trace" else total + duration_secs
        record.compiled += stage == "compile"


def _record_of_call() -> Any:
    call = at_work.get()
    if not isinstance(call, _core.Call):
        return call
    history, record = call.cache.history, call.record
    if record is None and history is not None:
        # It found its trace: it is compiled again, or for the first time after `lower` or a trace inside another one.
        record = history.compiling(*call.describe())
        if record is not None:
            call.set_record(record)
    return record


def _begin_trace(*args: Any) -> Any:
    from partax._explain.history import begin_trace  # imported late: the first trace needs it

    return begin_trace(*args)


def install() -> None:
    observers.before_trace, observers.after_trace = _begin_trace, lambda record, failed: record.end(failed)
    _core.JitFunction.report = _report  # type: ignore[method-assign]
    jax.monitoring.register_event_duration_secs_listener(_on_duration)
