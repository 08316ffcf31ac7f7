"""Shardings of a call's arrays, from prefixes of the user's own trees."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from partax import _core
from partax._jit.options import Options, is_traced_array
from partax._jit.parameters import option_names, value_names
from partax._tree.array_text import array_text


def is_sharding_leaf(prefix: Any) -> bool:
    """Whether a part of a prefix is one sharding, for all that stands there."""
    return prefix is None or isinstance(prefix, (Sharding, PartitionSpec))


def sharding_of(device: Any, backend: str | None, *shardings: Any) -> Sharding:
    """What options that jax has deprecated stand for, which a function that a user calls has got; warns that they are.

    Args:
      device: where to compute.
      backend: where to compute, on its first device.
      *shardings: the options that are given in their place now.

    Returns:
      The sharding of all arguments and results.

    Raises:
      ValueError: both are given, or one beside shardings.
    """
    if device is not None and backend is not None:
        raise ValueError(f"found both device={device!r} and backend={backend!r}, expected one of them")
    if shardings != (None,) * len(shardings):
        raise ValueError("found device or backend beside in_shardings or out_shardings, expected one of them")
    where = device if device is not None else jax.local_devices(backend=backend)[0]
    warnings.warn(
        "the options device and backend are deprecated, as they are of jax.jit: give in_shardings and out_shardings, "
        "jax.sharding.SingleDeviceSharding(device), or put the arguments there by jax.device_put",
        DeprecationWarning,
        stacklevel=3,
    )
    return SingleDeviceSharding(where)


class PrefixOfValue:
    """A prefix that is made from the value that it is for."""

    def of(self, value: Any) -> Any:
        """The prefix."""
        raise NotImplementedError


def prefix_for(prefix: Any, tree: Any) -> Any:
    """A prefix without the parts that are made from the value that they are for, which are made here.

    Args:
      prefix: of `tree`. Where it is none, its other parts are left, by which `broadcast_prefix` says so.
      tree: what it is for.

    Returns:
      A prefix of shardings alone.
    """
    leaves, structure = jax.tree.flatten(prefix, is_leaf=lambda it: is_sharding_leaf(it) or _is_made(it))
    if not any(map(_is_made, leaves)):
        return prefix
    try:
        values = structure.flatten_up_to(tree)
    except ValueError:
        return structure.unflatten([None if _is_made(leaf) else leaf for leaf in leaves])
    return structure.unflatten(
        [leaf.of(value) if _is_made(leaf) else leaf for leaf, value in zip(leaves, values, strict=True)]
    )


def _is_made(leaf: Any) -> bool:
    return isinstance(leaf, PrefixOfValue)


def array_shardings(
    prefix: Any, tree: Any, option: str, root: str, is_traced: Callable[[Any], bool] = is_traced_array
) -> list[Any]:
    """The sharding for each traced leaf of `tree`, from a prefix of it; None where there is none."""
    pairs = _core.broadcast_prefix(prefix_for(prefix, tree), tree, is_sharding_leaf, option, root)
    return [sharding for leaf, sharding in pairs if is_traced(leaf)]


def leaf_in_shardings(options: Options, values: Sequence[Any]) -> list[Any]:
    """The explicit sharding of each input leaf of the call under way, or None."""
    prefix = options.in_shardings
    call = _core.call_shape()
    names, has_callable = value_names(call), call[-1]
    first = 1 if has_callable else 0
    traces = [functools.partial(options.traces, own) for own in option_names(call)]
    per_value: list[Any] = [None] * len(values)
    if isinstance(prefix, tuple) and not is_sharding_leaf(prefix):
        left_out = call[1]  # a default that was left out is no argument
        given = [sharding for i, sharding in enumerate(prefix) if i not in left_out]
        if len(given) > len(values) - first:
            raise ValueError(
                f"in_shardings has {len(prefix)} entries, expected at most one for each argument "
                f"({', '.join(names[first:])})"
            )
        per_value[first : first + len(given)] = given
        for name, value, is_traced in list(zip(names, values, traces, strict=True))[first + len(given) :]:
            if array_shardings(None, value, "in_shardings", name, is_traced):
                raise ValueError(
                    f"in_shardings has {len(given)} entries and none for the arrays of `{name}`; use None to leave it "
                    "to jax"
                )
    else:
        per_value[first:] = [prefix] * (len(values) - first)
    shardings: list[Any] = []
    for name, value, part, is_traced in zip(names, values, per_value, traces, strict=True):
        shardings += array_shardings(part, value, "in_shardings", name, is_traced)
    return shardings


def misplaced_leaf(
    options: Options, values: Sequence[Any], leaves: Sequence[Any], error: ValueError
) -> tuple[int, str] | None:
    """The first array leaf that `in_shardings` do not fit, of the call under way, which jax has refused.

    Args:
      options: the wrapper's.
      values: of the call.
      leaves: the array leaves.
      error: what jax has raised.

    Returns:
      The index of the leaf and what is wrong with it, or None if all fit.
    """
    if options.in_shardings is None:
        return None
    shardings = leaf_in_shardings(options, values)
    for i, (leaf, sharding) in enumerate(zip(leaves, shardings, strict=True)):
        array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)  # a Python number, which `trace` asks for
        if isinstance(sharding, Sharding) and not _fits(array, sharding):
            return i, (
                f"found {array_text(array)}, expected an array that can have the sharding {sharding} of in_shardings; "
                f"place it by `filter_shard`, or give in_shardings another one there. JAX says: {error}"
            )
    return None


def _fits(leaf: Any, sharding: Sharding) -> bool:
    if isinstance(sharding, NamedSharding) and len(sharding.spec) > leaf.ndim:
        return False
    try:
        sharding.shard_shape(leaf.shape)
    except ValueError:
        return False
    if isinstance(leaf, Tracer) or not isinstance(leaf, jax.Array) or not leaf.committed:
        return True
    return leaf.sharding.is_equivalent_to(sharding, leaf.ndim)


def leaf_out_shardings(options: Options, result: Any) -> tuple[Any, ...] | None:
    """The explicit sharding of each array of a result, or None if there are no out_shardings."""
    if options.out_shardings is None:
        return None
    return tuple(array_shardings(options.out_shardings, result, "out_shardings", "the result"))
