"""The only file that has jax tell what it compiles and runs, by names of jax's that are not public."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np

from partax._jax.private import _attribute, _name, concrete_array_type, under_trace

_FUNCTION = "lower_sharding_computation"
_executable = _name("jax._src.interpreters.pxla.MeshExecutable")


def _put(until: ExitStack, owner: Any, name: str, value: Any) -> None:
    until.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def watch_lowering(until: ExitStack, seen: Callable[[Any, str, Sequence[bool]], None]) -> bool:
    """Has `seen(jaxpr, name, donated)` called before each program of this process is lowered, until all is put back;
    says whether this jax lets it.

    Without it, a script is examined by the traces of partax alone.
    """
    module = _name("jax._src.interpreters.pxla")
    lower = getattr(module, _FUNCTION, None)
    if lower is None:
        return False

    def watched(jaxpr: Any, api_name: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        donated = args[4] if len(args) > 4 else ()
        seen(jaxpr, str(name), donated)
        return lower(jaxpr, api_name, name, *args, **kwargs)

    _put(until, module, _FUNCTION, watched)
    return True


MISS = "jax/_src/pjit.py", "cache_miss"
"""The file and the function that make each call of a `jax.jit` which jax's native dispatch does not know yet."""


def static_arguments(variables: Mapping[str, Any]) -> tuple[int | str, ...]:
    """The positions and the names of static arguments, by the variables of such a call."""
    info = variables.get("jit_info")
    return *(_attribute(info, "static_argnums") or ()), *(_attribute(info, "static_argnames") or ())


_RUN, _RUN_BEFORE = "_run_python_pjit", "_python_pjit_helper"  # what makes such a call, and what did before jax 0.9
_infer: Any = _name("jax._src.pjit._infer_params")


def watch_operations(until: ExitStack, ran: Callable[[str, float], None]) -> None:
    """Has `ran(name, seconds)`, of this thread's time, called after each operation of jax's that runs by itself, if
    this jax lets it.

    An operation is a function of `jax.numpy` or a primitive. Such calls take jax's slow path each time.
    """
    module = _name("jax._src.pjit")
    infer = None if hasattr(module, _RUN) else _infer
    made_by = _RUN if infer is None else _RUN_BEFORE
    run: Any = getattr(module, made_by, None)
    if run is None:
        return

    def watched(*given: Any, **keywords: Any) -> Any:
        # (parameters, leaves, function, ..., arguments, keywords), or (function, options, *arguments, **keywords).
        fun = given[2] if infer is None else given[0]
        name: Any = _attribute(fun, "__name__")  # which what `shard_map` makes has not
        is_operation = name is not None and str(_attribute(fun, "__module__")).startswith("jax.")
        if under_trace() or not is_operation:
            return run(*given, **keywords)
        begin = time.thread_time()
        result = run(*given, **keywords)
        ran(str(name), time.thread_time() - begin)
        return tuple(None if type(it) is _executable else it for it in result)  # with one, jax would call it natively

    _put(until, module, made_by, watched)


class _Builtin:
    """A function that becomes no method as the attribute of a class, and is pickled by its name."""

    def __init__(self, call: Callable[..., Any]) -> None:
        functools.update_wrapper(self, call)
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __reduce__(self) -> str:
        return self._call.__name__


FETCH, WAIT = "fetch", "wait"  # the names of what reads an array's value, and of `block_until_ready`


def watch_arrays(until: ExitStack, awaited: Callable[[str, float], None]) -> None:
    """Has `awaited(FETCH, seconds)` called after the host has read an array of jax's, by Python or by NumPy, and with
    `WAIT` after `block_until_ready`.
    """
    arrays: Any = concrete_array_type() or jax.Array
    wait = _attribute(arrays, "block_until_ready")  # which has no name for a wrapper to take

    def timed(name: str, run: Any, of: Any) -> Callable[..., Any]:
        @functools.wraps(run)
        def run_timed(*args: Any, **kwargs: Any) -> Any:
            if not args or not isinstance(args[0], of):
                return run(*args, **kwargs)
            begin = time.perf_counter()
            result = run(*args, **kwargs)
            awaited(name, time.perf_counter() - begin)
            return result

        return run_timed

    read: Any = getattr(_attribute(arrays, "_value"), "fget", None)
    if read is not None:
        _put(until, arrays, "_value", property(timed(FETCH, read, arrays)))
    for owner, run in ((arrays, wait and (lambda it: wait(it))), (jax, jax.block_until_ready)):
        if run is not None:
            _put(until, owner, "block_until_ready", timed(WAIT, run, object))
    for name in ("array", "asarray", "asanyarray"):
        _put(until, np, name, _Builtin(timed(FETCH, getattr(np, name), arrays)))
