"""Functions of partax as Equinox spells their parameters, for `partax.equinox`."""

from collections.abc import Callable, Sequence
from typing import Any

from partax._jit import filter_jit as of_jit
from partax._jit import shardings
from partax._pytree import partition as of_partax
from partax._pytree.filters import FilterSpec
from partax._pytree.partition import PyTree
from partax._transforms import callbacks

DONATE_MODES = {"warn": "all", "warn-except-first": "all-except-first"}
"""Modes of Equinox's in which jax warns about donated buffers that it could not use, as it does in all of partax's."""


def filter_jit(fun: Any = None, *, donate: str | Sequence[str] = "none", **options: Any) -> Any:
    """`partax.filter_jit`, also with Equinox's names of the modes of `donate`.

    Example:
      >>> import partax.equinox as eqx
      >>> add = eqx.filter_jit(lambda x, y: x + y, donate="warn-except-first")
      >>> add(jnp.ones(2), jnp.ones(2))
      Array([2., 2.], dtype=float32)

    Args:
      fun: what to compile; a decorator without it.
      donate: same as in `partax.filter_jit`; `"warn"` is `"all"`, and `"warn-except-first"` is `"all-except-first"`.
      **options: the others of `partax.filter_jit`.

    Returns:
      What `partax.filter_jit` returns.

    Raises:
      ValueError, TypeError: same as in `partax.filter_jit`.
    """
    mode = DONATE_MODES.get(donate, donate) if isinstance(donate, str) else donate
    return of_jit.filter_jit(fun, donate=mode, **options)


def partition(
    pytree: PyTree, filter_spec: FilterSpec, replace: Any = None, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[PyTree, PyTree]:
    """`partax.partition` by one filter, with its options by position too.

    Example:
      >>> import partax.equinox as eqx
      >>> eqx.partition([1, "x"], int, "-")
      ([1, '-'], ['-', 'x'])

    Args:
      pytree: any pytree.
      filter_spec: a filter, same as in `partax.partition`.
      replace: what stands in each tree for the leaves that went into the other.
      is_leaf: a predicate on nodes; where it is true, the node counts as one leaf.

    Returns:
      What the filter takes, and the rest.

    Raises:
      ValueError: as for `partax.partition`.
    """
    first, rest = of_partax.partition(pytree, filter_spec, replace=replace, is_leaf=is_leaf)
    return first, rest


def filter_shard(x: PyTree, device_or_shardings: Any) -> PyTree:
    """`partax.filter_shard`, with its parameters called as Equinox calls them.

    Example:
      >>> import partax.equinox as eqx
      >>> eqx.filter_shard(x=jnp.ones(2), device_or_shardings=jax.devices()[1]).device
      CpuDevice(id=1)

    Args:
      x: any pytree, of which the arrays are placed.
      device_or_shardings: one device or sharding for all arrays, or a pytree prefix of `x` with those as its leaves.

    Returns:
      A tree like it.

    Raises:
      ValueError: `device_or_shardings` is not a prefix of `x`, or does not divide an array.
      TypeError: a leaf of `device_or_shardings` is not a sharding, or JAX cannot hold an array.
    """
    return shardings.filter_shard(x, device_or_shardings)


def filter_pure_callback(*args: Any, vectorized: bool | None = None, **kwargs: Any) -> Any:
    """`partax.filter_pure_callback`, also with `vectorized`, the older form of `vmap_method`.

    Example:
      >>> import partax.equinox as eqx
      >>> like = jax.ShapeDtypeStruct((2,), "float32")
      >>> eqx.filter_pure_callback(lambda x: x * 2, jnp.ones(2), result_shape_dtypes=like, vectorized=True)
      Array([2., 2.], dtype=float32)

    Args:
      *args: the callback and its arguments.
      vectorized: True is `vmap_method="expand_dims"`, False is `"sequential"`.
      **kwargs: the options of `partax.filter_pure_callback`, and arguments of the callback by name.

    Returns:
      What the callback returns.
    """
    if vectorized is not None:
        kwargs.setdefault("vmap_method", "expand_dims" if vectorized else "sequential")
    return callbacks.filter_pure_callback(*args, **kwargs)
