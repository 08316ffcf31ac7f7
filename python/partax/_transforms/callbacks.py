"""filter_pure_callback and filter_io_callback: Python functions that a compiled program calls."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.experimental import io_callback
from jax.sharding import Sharding

from partax._transforms.objects import Objects
from partax._transforms.split import Split, is_same, spread
from partax._transforms.wrapper import check_callable


def filter_pure_callback(
    callback: Callable[..., Any],
    *args: Any,
    result_shape_dtypes: Any,
    sharding: Sharding | None = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call a Python function without side effects from a program. Same as `jax.pure_callback`, for any pytree.

    Example:
      >>> def on_host(tree):
      ...     return {"x": tree["x"] * 2, "name": tree["name"]}
      >>> like = {"x": jax.ShapeDtypeStruct((2,), "float32"), "name": "a"}
      >>> step = partax.filter_jit(lambda tree: partax.filter_pure_callback(on_host, tree, result_shape_dtypes=like))
      >>> step({"x": jnp.ones(2), "name": "a"})
      {'name': 'a', 'x': Array([2., 2.], dtype=float32)}

    Args:
      callback: The function.
      *args: Its arguments; it gets arrays as arrays, and everything else unchanged.
      result_shape_dtypes: A tree like its result, with a `jax.ShapeDtypeStruct` (or anything with a shape and a dtype)
        for each array. Other leaves are equal to those that the function returns.
      sharding: Same as in `jax.pure_callback`. Default: None.
      vmap_method: Same as in `jax.pure_callback`. Default: None.
      **kwargs: Its arguments by name.

    Returns:
      The result of `callback`.

    Raises:
      TypeError: `callback` is not callable.
      ValueError: When the program runs, inside jax's own error: the result is not like `result_shape_dtypes`.

    See Also:
      The guide "Transformations of any tree".
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
    """Call a Python function with side effects from a program. Same as `jax.experimental.io_callback`, for any pytree.

    Example:
      >>> seen = []
      >>> note = lambda name, x: seen.append((name, float(x)))
      >>> step = partax.filter_jit(lambda x: (partax.filter_io_callback(note, "loss", x), x + 1))
      >>> _ = step(jnp.float32(2))
      >>> jax.effects_barrier()
      >>> seen
      [('loss', 2.0)]

    Args:
      callback: The function.
      *args: Its arguments; it gets arrays as arrays, and everything else unchanged.
      result_shape_dtypes: Same as in `filter_pure_callback`. Default: None, for a function that returns None.
      sharding: Same as in `jax.experimental.io_callback`. Default: None.
      ordered: Whether calls run in the order of the program. Default: False.
      **kwargs: Its arguments by name.

    Returns:
      The result of `callback`.

    Raises:
      TypeError: `callback` is not callable.
      ValueError: When the program runs, same as in `filter_pure_callback`.

    See Also:
      The guide "Transformations of any tree".
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
    result = Split.of(expected, _is_struct)

    def run(split: Split) -> dict[str, Any]:
        positional, named = split.tree
        pairs = spread(expected, function(*positional, **named), _is_struct, "result_shape_dtypes", "the result")
        for leaf, entry in pairs.values():
            if not _is_struct(entry) and not is_same(leaf, entry):
                raise ValueError(
                    f"the result of the callback `{getattr(callback, '__name__', callback)}` is not what "
                    f"result_shape_dtypes says apart from arrays: found {leaf!r}, expected {entry!r}"
                )
        return {path: leaf for path, (leaf, entry) in pairs.items() if _is_struct(entry)}

    return result.update(call(run, result.leaves, Split.of((args, kwargs)))).tree


def _is_struct(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")
