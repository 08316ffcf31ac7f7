"""A call that finds no program, from top to bottom: its target is built, and jax traces that.

The native wrapper has created the static key of the call and an entry for it, and calls `cache_miss`. jax calls the
function that this returns, and so `trace`, also in later calls: for arrays of other shapes, or after
`jax.clear_caches()`.
"""

from typing import Any

from partax import _core
from partax._jit.at_work import at_work, during
from partax._jit.build_target import build_target, traced_function
from partax._jit.jit import arrays_of
from partax._jit.lost_changes import call_watched
from partax._jit.observers import observers
from partax._jit.runtime_errors import explain_failure, holds_errors
from partax._jit.shardings import leaf_out_shardings
from partax._jit.static_arrays import warn_of_constants


def cache_miss(call: _core.Call) -> None:
    """Set the target of the entry of a new static key, and the stored programs that calls may run instead. Called by
    the native wrapper, maybe by several threads at once for one key.
    """
    try:
        # All threads have the function of the first one, so that jax traces it once.
        traced = call.traced_function or call.share_function(traced_function(call, trace))
        options, leaves = call.options, call.leaves
        programs = observers.find_programs(options, leaves, traced)
        if programs is not None:
            call.set_stored(programs)
        while not call.has_target:  # a trace in another thread may forward what this target would donate
            stored_donated = None if programs is None else programs.donated
            target, donated = build_target(traced, leaves, call.forwarded, stored_donated)
            if programs is not None:
                programs.target, programs.donated = target, donated
            call.set_target(target, donated)
    except Exception as error:  # building may trace, which fails as the call itself would
        explained = explain_failure(error, call)
        if explained is error:
            raise
        raise explained from explained.__cause__


def trace(program: _core.Program, leaves: tuple[Any, ...]) -> Any:
    """Call the function of the call that runs a program, with its arguments, whose arrays are the tracers `leaves`.
    Return the output node for JAX.
    """
    begun = program.begin_trace(leaves)  # the arguments are still those of the key
    call, record, failed = begun.call, None, True
    try:
        record = observers.before_trace(call, begun, leaves)  # which may refuse it
        call.set_record(record)
        with during(at_work, None):
            result = _call_function(call, begun.arguments())
        node = begun.output(result, leaf_out_shardings(call.options, result))
        warn_of_constants(record, node)
        if call.stores_result and isinstance(node, _core.OutputNode):
            _core.set_stored_result(node, observers.describe_result(call, result, leaves, node))
        if holds_errors():
            call.wait_for_results()
        failed = False
        return node
    finally:
        begun.end(0 if record is None else record.number, failed)
        if record is not None:
            observers.after_trace(record, failed)


def _call_function(call: _core.Call, values: tuple[Any, ...]) -> Any:
    fun = values[0] if call.shape.has_callable else call.function
    graph = call.options.graph
    if call.options.static_parameters is not None:
        return arrays_of(fun, call.shape.call(fun, values))
    return call_watched(call, fun, values) if graph is None else graph.trace(call, fun, values)
