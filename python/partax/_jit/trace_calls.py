"""The methods of a wrapper that trace or compile calls without running them."""

import concurrent.futures  # which imports its threads once they are asked for
import functools
import os
import sys
from typing import Any

import jax

from partax import _core
from partax._families.settings import texts_of_libraries
from partax._jax.private import configuration, every_setting, mesh_of_call
from partax._jit.ahead_of_time import Lowered, Program, Traced, quiet
from partax._jit.exported import ArrayCall, asked_by_export
from partax._pytree.short_text import short_text


def _abstract_result(call: _core.PreparedCall, out_info: Any) -> Any:
    """The user's result with ShapeDtypeStructs, for forwarded inputs those that jax has for them."""
    leaves = list(call.leaves)
    forwarded, _ = _core.output_info(out_info)
    for i, info in zip(forwarded, jax.eval_shape(lambda leaves: leaves, [leaves[i] for i in forwarded]), strict=True):
        leaves[i] = info
    result = call.result(out_info, tuple(leaves))
    return result if call.objects is None else result.abstract_result(call.objects)


def trace(self: Any, /, *args: Any, **kwargs: Any) -> Traced:
    """Traces the function for these arguments; `jax.ShapeDtypeStruct`s may stand for arrays.

    Example:
      >>> scale = partax.filter_jit(lambda x, by: x * by)
      >>> scale.trace(jax.ShapeDtypeStruct((3,), "float32"), 2.0).jaxpr
      { lambda ; a:f32[3]. let b:f32[3] = mul a 2.0:f32[] in (b,) }

    Args:
      *args, **kwargs: as of the wrapped function.

    Returns:
      The `Traced` call.

    Raises:
      RetraceError: as a call would.
      TypeError: as a call would. What the function raises when it is traced comes as it is.
    """
    if asked_by_export(sys._getframe(1).f_globals):
        with quiet(self):
            return ArrayCall(self, args, kwargs).trace()
    with quiet(self):
        call = _core.PreparedCall(self, args, kwargs, True)
        traced = call.run(lambda target, it: target.trace(*it) if call.stored is None else call.stored.trace(it))
    out_info = _abstract_result(call, traced.out_info)
    try:
        arrays = ArrayCall(self, args, kwargs)
    except Exception as error:  # no error before jax's own tools are used
        arrays = error.with_traceback(None)
    program = Program(self, call, arrays)
    call.detach()
    return Traced(program, traced, out_info)


def lower(self: Any, /, *args: Any, **kwargs: Any) -> Lowered:
    """Traces and lowers the function for these arguments; `jax.ShapeDtypeStruct`s may stand for arrays.

    Example:
      >>> scale = partax.filter_jit(lambda x, by: x * by)
      >>> compiled = scale.lower(jax.ShapeDtypeStruct((3,), "float32"), 2.0).compile()
      >>> compiled(jnp.ones(3), 2.0)
      Array([2., 2., 2.], dtype=float32)

    Args:
      *args, **kwargs: as of the wrapped function.

    Returns:
      The `Lowered` program.

    Raises:
      RetraceError, TypeError: as `trace` would.
    """
    return trace(self, *args, **kwargs).lower()


def eval_shape(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The result's shapes and dtypes, without computing it; `jax.ShapeDtypeStruct`s may stand for arrays.

    Example:
      >>> named = partax.filter_jit(lambda x, name: {name: x.sum()})
      >>> named.eval_shape(jax.ShapeDtypeStruct((3,), "float32"), "total")
      {'total': ShapeDtypeStruct(shape=(), dtype=float32)}

    Args:
      *args, **kwargs: as of the wrapped function.

    Returns:
      The result with a `jax.ShapeDtypeStruct` for each array; other leaves are as the function returns them.

    Raises:
      RetraceError, TypeError: as `trace` would.
    """
    return trace(self, *args, **kwargs).out_info


def precompile(self: Any, /, *calls: tuple[Any, ...] | dict[str, Any], threads: int | None = None) -> None:
    """Compiles, or loads from the store, what these calls need, so that they neither trace nor compile. Runs nothing.

    Example:
      >>> scale = partax.filter_jit(lambda x, by: x * by)
      >>> scale.precompile((jax.ShapeDtypeStruct((2,), "float32"), 3), {"x": jnp.ones(4), "by": 3}, threads=2)
      >>> scale(jnp.ones(2), 3), scale.cache_info().misses
      (Array([3., 3.], dtype=float32), 0)

    Args:
      *calls: of each call the positional arguments, a tuple, or the arguments by name, a dictionary.
        `jax.ShapeDtypeStruct`s may stand for arrays.
      threads: how many calls are worked for at once; as many as there are processors by default. Python traces in one
        thread at a time; XLA compiles in all of them. Where this thread has settings of its own, as within
        `with jax.enable_x64():`, it works for one call after the other, and the others for none.

    Raises:
      TypeError: one of the calls is neither of the two; or as the call would. What the function raises when it is
        traced comes as it is, with a note that tells which call it was; the others are compiled all the same.
      ValueError: `threads` is not positive.
    """
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ValueError(f"found threads={short_text(threads)}, expected a positive number of threads")
    for i, call in enumerate(calls):
        if not isinstance(call, (tuple, dict)):
            raise TypeError(
                f"found a `{type(call).__name__}` as call {i + 1}, expected a tuple of its arguments, or a dictionary "
                f"of them by name"
            )
    with concurrent.futures.ThreadPoolExecutor(threads or os.cpu_count(), "partax precompile") as pool:
        each = pool.map if pool.submit(_in_force).result() == _in_force() else map
        errors = list(each(functools.partial(_error_of, self), calls))
    for i, error in enumerate(errors):
        if error is not None:
            error.add_note(f"partax: of call {i + 1} of {len(calls)} that were to be compiled")
            raise error


def _in_force() -> tuple[Any, ...]:
    """The settings that are in force in this thread: what `with` statements have set holds in their thread alone."""
    return configuration(), every_setting(), texts_of_libraries(), mesh_of_call()


def _error_of(wrapper: Any, call: Any) -> BaseException | None:
    """Compiles or loads what a call needs; gives what that raises."""
    args, kwargs = (call, {}) if isinstance(call, tuple) else ((), call)
    try:
        with quiet(wrapper):
            compile_call(wrapper, args, kwargs)
    except Exception as error:
        return error
    return None


def compile_call(wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Compiles or loads what a call needs, and runs nothing."""

    def compile_or_load(target: Any, arguments: tuple[Any, ...]) -> None:
        stored = prepared.stored
        if stored is None or stored.choose(arguments) is stored.target:  # it has no stored program
            target.trace(*arguments).lower().compile()

    prepared = _core.PreparedCall(wrapper, args, kwargs, True)
    prepared.run(compile_or_load)
