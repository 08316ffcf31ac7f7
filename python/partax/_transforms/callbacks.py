"""filter_pure_callback and filter_io_callback: Python functions that a compiled program calls."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.experimental import io_callback
from jax.sharding import Sharding

from partax import _core
from partax._transforms.objects import Objects
from partax._transforms.on_arrays import Rest, joined, split
from partax._transforms.wrapper import check_callable


def filter_pure_callback(
    callback: Callable[..., Any],
    *args: Any,
    result_shape_dtypes: Any,
    sharding: Sharding | None = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Calls a Python function without side effects from a program: `jax.pure_callback` for any trees.

    Example:
      >>> def on_host(tree):
      ...     return {"x": tree["x"] * 2, "name": tree["name"]}
      >>> like = {"x": jax.ShapeDtypeStruct((2,), "float32"), "name": "a"}
      >>> step = partax.filter_jit(lambda tree: partax.filter_pure_callback(on_host, tree, result_shape_dtypes=like))
      >>> step({"x": jnp.ones(2), "name": "a"})
      {'name': 'a', 'x': Array([2., 2.], dtype=float32)}

    Args:
      callback: the function.
      *args: its arguments; it gets the arrays as arrays, and all else as it is.
      result_shape_dtypes: a tree like its result, with a `jax.ShapeDtypeStruct` (or anything with a shape and a dtype)
        for each array. What is not an array there has to be what the function returns.
      sharding: same as in `jax.pure_callback`.
      vmap_method: same as in `jax.pure_callback`.
      **kwargs: its arguments by name.

    Returns:
      What `callback` returns.

    Raises:
      TypeError: `callback` is not callable.
      ValueError: when the program runs, jax's error with the message of one: the result is not like
        `result_shape_dtypes`.
    """
    call = functools.partial(jax.pure_callback, sharding=sharding, vmap_method=vmap_method)
    return _call_back("filter_pure_callback", call, callback, args, kwargs, result_shape_dtypes)


def filter_io_callback(
    callback: Callable[..., Any],
    *args: Any,
    result_shape_dtypes: Any = None,
    sharding: Sharding | None = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Calls a Python function with side effects from a program: `jax.experimental.io_callback` for any trees.

    Example:
      >>> seen = []
      >>> note = lambda name, x: seen.append((name, float(x)))
      >>> step = partax.filter_jit(lambda x: (partax.filter_io_callback(note, "loss", x), x + 1))
      >>> _ = step(jnp.float32(2))
      >>> jax.effects_barrier()
      >>> seen
      [('loss', 2.0)]

    Args:
      callback: the function.
      *args: its arguments; it gets the arrays as arrays, and all else as it is.
      result_shape_dtypes: same as in `filter_pure_callback`. None: it returns None.
      sharding: same as in `jax.experimental.io_callback`.
      ordered: whether calls run in the order in which the program has them.
      **kwargs: its arguments by name.

    Returns:
      What `callback` returns.

    Raises:
      TypeError: `callback` is not callable.
      ValueError: when the program runs, as for `filter_pure_callback`.
    """
    call = functools.partial(io_callback, sharding=sharding, ordered=ordered)
    return _call_back("filter_io_callback", call, callback, args, kwargs, result_shape_dtypes)


def _call_back(
    transformation: str,
    call: Callable[..., Any],
    callback: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    expected: Any,
) -> Any:
    check_callable(callback, transformation)
    function = Objects.of_call(transformation, callback, args, kwargs).refuse_changes(callback)
    arrays, static = split((args, kwargs))
    structs, rest = split(expected, _is_struct)

    def run(values: Any) -> Any:
        positional, named = joined((values, static))
        out = function(*positional, **named)
        pairs = _core.broadcast_prefix(expected, out, _is_struct, "result_shape_dtypes", "the result")
        for leaf, entry in pairs:
            if not _is_struct(entry) and Rest(leaf) != Rest(entry):
                raise ValueError(
                    f"the result of the callback `{getattr(callback, '__name__', callback)}` is not what "
                    f"result_shape_dtypes says apart from arrays: found {leaf!r}, expected {entry!r}"
                )
        return [leaf if _is_struct(entry) else None for leaf, entry in pairs]

    return joined((call(run, structs, arrays), rest))


def _is_struct(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")
