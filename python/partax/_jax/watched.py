"""Watches what jax compiles and runs, by private names of jax."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np

from partax._jax.private import _attribute, _name, array_type, under_trace

_FUNCTION = "lower_sharding_computation"
_executable = _name("jax._src.interpreters.pxla.MeshExecutable")


def _put(until: ExitStack, owner: Any, name: str, value: Any) -> None:
    until.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def watch_lowering(until: ExitStack, seen: Callable[[Any, str, Sequence[bool]], None]) -> None:
    """Call `seen(jaxpr, name, donated)` before each program of this process is lowered, until `until` is closed. If jax
    does not allow it, only the functions of partax in a script are examined.
    """
    module = _name("jax._src.interpreters.pxla")
    lower = getattr(module, _FUNCTION, None)
    if lower is None:
        return

    def watched(jaxpr: Any, api_name: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        donated = args[4] if len(args) > 4 else ()
        seen(jaxpr, str(name), donated)
        return lower(jaxpr, api_name, name, *args, **kwargs)

    _put(until, module, _FUNCTION, watched)


MISS = "jax/_src/pjit.py", "cache_miss"
"""The file and the function in which jax handles a call that is not in its native dispatch cache."""


def static_arguments(variables: Mapping[str, Any]) -> tuple[int | str, ...]:
    """The positions and names of static arguments, by the variables of a frame of `MISS`."""
    info = variables.get("jit_info")
    return *(_attribute(info, "static_argnums") or ()), *(_attribute(info, "static_argnames") or ())


_RUN = "_run_python_pjit"


def watch_operations(until: ExitStack, ran: Callable[[str, float], None]) -> None:
    """Call `ran(name, seconds)`, in seconds of this thread, after each function of `jax.numpy` or primitive that runs
    outside jit, if this jax allows it. While it is watched, it uses jax's slow path.
    """
    module = _name("jax._src.pjit")
    run: Any = getattr(module, _RUN, None)
    if run is None:
        return

    def watched(*args: Any, **kwargs: Any) -> Any:
        fun = args[2]  # after the parameters and the leaves
        name: Any = _attribute(fun, "__name__")  # functions made by `shard_map` have none
        is_operation = name is not None and str(_attribute(fun, "__module__")).startswith("jax.")
        if under_trace() or not is_operation:
            return run(*args, **kwargs)
        begin = time.thread_time()
        result = run(*args, **kwargs)
        ran(str(name), time.thread_time() - begin)
        # With an executable in the result, jax would dispatch the next call natively.
        return tuple(None if type(part) is _executable else part for part in result)

    _put(until, module, _RUN, watched)


FETCH, WAIT = "fetch", "wait"  # a read of an array's value, and `block_until_ready`


def watch_arrays(until: ExitStack, awaited: Callable[[str, float], None]) -> None:
    """Call `awaited(FETCH, seconds)` after the host has read an array of jax, by Python or by NumPy, and
    `awaited(WAIT, seconds)` after `block_until_ready`.
    """
    wait = _attribute(array_type, "block_until_ready")  # a builtin without a name

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

    read: Any = getattr(_attribute(array_type, "_value"), "fget", None)
    if read is not None:
        _put(until, array_type, "_value", property(timed(FETCH, read, array_type)))
    for owner, run in ((array_type, wait and (lambda array: wait(array))), (jax, jax.block_until_ready)):
        if run is not None:
            _put(until, owner, "block_until_ready", timed(WAIT, run, object))
    for name in ("array", "asarray", "asanyarray"):
        # As the attribute of a class, a builtin does not become a method.
        _put(until, np, name, staticmethod(timed(FETCH, getattr(np, name), array_type)))
