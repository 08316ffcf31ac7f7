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
    """Compile a function. Same as `partax.filter_jit`, also with Equinox's names of the modes of `donate`.

    Example:
      >>> add = partax.equinox.filter_jit(lambda x, y: x + y, donate="warn-except-first")
      >>> add(jnp.ones(2), jnp.ones(2))
      Array([2., 2.], dtype=float32)

    Args:
      fun: What to compile. Default: None, to return a decorator.
      donate: Also `"warn"` for `"all"`, and `"warn-except-first"` for `"all-except-first"`. Default: `"none"`.
      **options: The other options of `partax.filter_jit`.

    Returns:
      A wrapper. Same as in `partax.filter_jit`.

    Raises:
      ValueError, TypeError: Same as in `partax.filter_jit`.

    See Also:
      The guide "`filter_jit` and what is static".
    """
    mode = DONATE_MODES.get(donate, donate) if isinstance(donate, str) else donate
    return of_jit.filter_jit(fun, donate=mode, **options)


def partition(
    pytree: PyTree, filter_spec: FilterSpec, replace: Any = None, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[PyTree, PyTree]:
    """Split a tree by one filter. Same as `partax.partition`, with its options by position too.

    Example:
      >>> partax.equinox.partition([1, "x"], int, "-")
      ([1, '-'], ['-', 'x'])

    Args:
      pytree: Any pytree.
      filter_spec: A filter. Same as in `partax.partition`.
      replace: The value in each tree for the leaves that are in the other. Default: None.
      is_leaf: A predicate on nodes; if it is true, the node counts as one leaf. Default: None, for no such nodes.

    Returns:
      What the filter matches, and the rest.

    Raises:
      ValueError: Same as in `partax.partition`.

    See Also:
      The guide "Partition and combine trees".
    """
    first, rest = of_partax.partition(pytree, filter_spec, replace=replace, is_leaf=is_leaf)
    return first, rest


def filter_shard(x: PyTree, device_or_shardings: Any) -> PyTree:
    """Place the arrays of a tree. Same as `partax.filter_shard`, with Equinox's names of its parameters.

    Example:
      >>> partax.equinox.filter_shard(x=jnp.ones(2), device_or_shardings=jax.devices()[1]).device
      CpuDevice(id=1)

    Args:
      x: Any pytree.
      device_or_shardings: One device or sharding for all arrays, or a pytree prefix of `x` with those as its leaves.

    Returns:
      A tree of the structure of `x`.

    Raises:
      ValueError, TypeError: Same as in `partax.filter_shard`.

    See Also:
      The guide "Donation and shardings".
    """
    return shardings.filter_shard(x, device_or_shardings)


def filter_pure_callback(*args: Any, vectorized: bool | None = None, **kwargs: Any) -> Any:
    """Call a Python function from compiled code. Same as `partax.filter_pure_callback`, also with `vectorized`.

    Example:
      >>> like = jax.ShapeDtypeStruct((2,), "float32")
      >>> partax.equinox.filter_pure_callback(lambda x: x * 2, jnp.ones(2), result_shape_dtypes=like, vectorized=True)
      Array([2., 2.], dtype=float32)

    Args:
      *args: The callback and its arguments.
      vectorized: The older form of `vmap_method`: True is `"expand_dims"`, False is `"sequential"`. Default: None.
      **kwargs: The options of `partax.filter_pure_callback`, and arguments of the callback by name.

    Returns:
      What the callback returns.

    See Also:
      The guide "Transformations of any tree".
    """
    if vectorized is not None:
        kwargs.setdefault("vmap_method", "expand_dims" if vectorized else "sequential")
    return callbacks.filter_pure_callback(*args, **kwargs)
