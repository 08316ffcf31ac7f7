"""The methods of a wrapper that trace a call without running it: trace, lower and eval_shape."""

import sys
from typing import Any

import jax

from partax import _core
from partax._jit.ahead_of_time import Lowered, Program, Traced, quiet
from partax._jit.exported import ArrayCall, asked_by_export


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
        traced = call.run(lambda target, arguments: target.trace(*arguments))
    out_info = _abstract_result(call, traced.out_info)
    try:
        arrays = ArrayCall(self, args, kwargs)
    except Exception as error:  # no error before jax's own tools are used
        arrays = error
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
