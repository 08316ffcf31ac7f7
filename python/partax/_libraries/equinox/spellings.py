"""Functions of partax as Equinox spells their parameters, for `partax.equinox`."""

from collections.abc import Callable, Sequence
from typing import Any

from partax._jit import filter_jit as of_jit
from partax._jit import shardings
from partax._pytree import partition as of_partax
from partax._pytree.filters import FilterSpec
from partax._pytree.partition import PyTree
from partax._transforms import programs

DONATE_MODES = {"warn": "all", "warn-except-first": "all-except-first"}
"""Modes of Equinox's in which jax warns about donated buffers that it could not use, as it does in all of partax's."""


def filter_jit(fun: Any = None, *, donate: str | Sequence[str] = "none", **options: Any) -> Any:
    """Compile a function. Same as `partax.filter_jit`, also with Equinox's names of the modes of `donate`.

    Example:
      >>> add = partax.equinox.filter_jit(lambda x, y: x + y, donate="warn-except-first")
      >>> add(jnp.ones(2), jnp.ones(2))
      Array([2., 2.], dtype=float32)
    """
    mode = DONATE_MODES.get(donate, donate) if isinstance(donate, str) else donate
    return of_jit.filter_jit(fun, donate=mode, **options)


def partition(
    pytree: PyTree, filter_spec: FilterSpec, replace: Any = None, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[PyTree, ...]:
    """Split a tree by one filter. Same as `partax.partition`, with its options by position too.

    Example:
      >>> partax.equinox.partition([1, "x"], int, "-")
      ([1, '-'], ['-', 'x'])
    """
    return of_partax.partition(pytree, filter_spec, replace=replace, is_leaf=is_leaf)


def filter_shard(x: PyTree, device_or_shardings: Any) -> PyTree:
    """Place the arrays of a tree. Same as `partax.filter_shard`, with Equinox's names of its parameters.

    Example:
      >>> partax.equinox.filter_shard(x=jnp.ones(2), device_or_shardings=jax.devices()[1]).device
      CpuDevice(id=1)
    """
    return shardings.filter_shard(x, device_or_shardings)


def filter_pure_callback(*args: Any, vectorized: bool | None = None, **kwargs: Any) -> Any:
    """Call a Python function from compiled code. Same as `partax.filter_pure_callback`, also with `vectorized`.

    Example:
      >>> like = jax.ShapeDtypeStruct((2,), "float32")
      >>> partax.equinox.filter_pure_callback(lambda x: x * 2, jnp.ones(2), result_shape_dtypes=like, vectorized=True)
      Array([2., 2.], dtype=float32)
    """
    if vectorized is not None:
        kwargs.setdefault("vmap_method", "expand_dims" if vectorized else "sequential")
    return programs.filter_pure_callback(*args, **kwargs)
