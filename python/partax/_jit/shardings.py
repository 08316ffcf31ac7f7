"""Shardings of a call's arrays, from prefixes of the user's own trees; arrays of a tree placed on devices."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from partax import _core
from partax._jax.private import under_trace
from partax._jit.options import CallShape, Options, is_traced_array, values_meant
from partax._pytree.filters import is_array
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.partition import PyTree
from partax._pytree.short_text import array_text


def is_sharding_leaf(prefix: Any) -> bool:
    """Return whether a part of a prefix is one sharding for the whole subtree."""
    return prefix is None or isinstance(prefix, (Sharding, PartitionSpec))


class PrefixOfValue:
    """A prefix that is made from the value that it is for."""

    def of(self, value: Any) -> Any:
        raise NotImplementedError


def prefix_for(prefix: Any, tree: Any) -> Any:
    """A prefix of a tree, with a part for each `PrefixOfValue`; with None there if it is not one, which
    `broadcast_prefix` reports.
    """

    def part_of(part: Any, value: Any) -> Any:
        return part.of(value) if isinstance(part, PrefixOfValue) else part

    def is_leaf(node: Any) -> bool:
        return is_sharding_leaf(node) or isinstance(node, PrefixOfValue)

    if isinstance(prefix, PrefixOfValue):
        return prefix.of(tree)
    if not any(isinstance(leaf, PrefixOfValue) for leaf in jax.tree.leaves(prefix, is_leaf=is_leaf)):
        return prefix
    try:
        return jax.tree.map(part_of, prefix, tree, is_leaf=is_leaf)
    except ValueError:
        return jax.tree.map(lambda leaf: None if isinstance(leaf, PrefixOfValue) else leaf, prefix, is_leaf=is_leaf)


def array_shardings(
    prefix: Any, tree: Any, option: str, root: str, is_traced: Callable[[Any], bool] = is_traced_array
) -> list[Any]:
    """The sharding for each traced leaf of `tree`, from a prefix of it; None where there is none."""
    pairs = _core.broadcast_prefix(prefix_for(prefix, tree), tree, is_sharding_leaf, option, root)
    return [sharding for leaf, sharding in pairs if is_traced(leaf)]


def leaf_in_shardings(options: Options, call: CallShape, values: Sequence[Any]) -> list[Any]:
    """The explicit sharding of each input leaf of a call, or None."""
    names, num_callables = call.value_names, int(call.has_callable)  # the callable comes first and has no entry
    arguments = len(values) - num_callables
    prefix = options.in_shardings
    entries = [prefix] * arguments
    if isinstance(prefix, tuple) and not is_sharding_leaf(prefix):
        entries = [entry for i, entry in enumerate(prefix) if i not in call.left_out]  # of defaults
        if len(entries) > arguments:
            every_name = call._replace(left_out=(), has_callable=False).value_names
            raise ValueError(f"in_shardings has more entries than there are arguments ({', '.join(every_name)})")
    shardings: list[Any] = []
    entries = [*[None] * num_callables, *entries]
    is_static = values_meant(options.static_parameters or (), call)
    for i, (name, value, parameter) in enumerate(zip(names, values, call.value_parameters, strict=True)):
        if is_static[i]:
            continue
        is_traced = functools.partial(options.traces, parameter)
        of_value = array_shardings(entries[i] if i < len(entries) else None, value, "in_shardings", name, is_traced)
        if of_value and i >= len(entries):
            raise ValueError(f"in_shardings has no entry for the arrays of `{name}`; use None to leave it to jax")
        shardings += of_value
    return shardings


def misplaced_leaf(
    options: Options, call: CallShape, values: Sequence[Any], leaves: Sequence[Any], error: ValueError
) -> tuple[int, str] | None:
    """The first leaf of a call that `in_shardings` do not fit, and in what; None if all fit."""
    if options.in_shardings is None:
        return None
    for i, (leaf, sharding) in enumerate(zip(leaves, leaf_in_shardings(options, call, values), strict=True)):
        if isinstance(sharding, Sharding) and not _fits(leaf, sharding):
            array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)  # a Python number, which `trace` asks for
            return i, (
                f"found {array_text(array)}, expected an array that can have the sharding {sharding} of in_shardings; "
                f"place it by `filter_shard`, or give in_shardings another one there. JAX says: {error}"
            )
    return None


def _fits(leaf: Any, sharding: Sharding) -> bool:
    try:
        jax.jit(lambda x: x, in_shardings=sharding).lower(leaf)
    except ValueError:
        return False
    return True


def leaf_out_shardings(options: Options, result: Any) -> tuple[Any, ...] | None:
    """The explicit sharding of each array of a result, or None without out_shardings."""
    prefix = options.out_shardings
    if prefix is None:
        return None
    # Of an object that is changed in place, the result is a field of what the program returns.
    pairs = [(prefix, result)] if options.graph is None else zip(prefix, result, strict=True)
    return tuple([one for part, value in pairs for one in array_shardings(part, value, "out_shardings", "the result")])


def filter_shard(tree: PyTree, sharding: Any) -> PyTree:
    """Place the arrays of a tree by a sharding, and leave everything else unchanged.

    Example:
      >>> by_row = jax.NamedSharding(jax.make_mesh((1,), ("data",)), jax.P("data"))
      >>> batch = partax.filter_shard({"x": jnp.ones((8, 2)), "name": "train"}, by_row)
      >>> batch["x"].sharding == by_row, batch["name"]
      (True, 'train')

    Outside functions that JAX transforms, arrays are moved by `jax.device_put`, which may reuse the memory of its
    inputs: if you donate the placed arrays, the inputs are deleted too. Inside them, the layout is prescribed by
    `jax.lax.with_sharding_constraint`, or over `Explicit` axes of a mesh by `jax.sharding.reshard`, but not by both.

    Args:
      tree: Any pytree. Its arrays, including NumPy arrays, are placed; a `jax.ShapeDtypeStruct` gets the sharding.
      sharding: A `jax.sharding.Sharding`, a device, or, within `jax.set_mesh`, a `jax.sharding.PartitionSpec`; or a
        pytree prefix of `tree` with these, and with None for arrays that are left unchanged.

    Returns:
      A tree of the same structure. An array that already has the sharding is the same object.

    Raises:
      ValueError: `sharding` is not a prefix of `tree`, or does not divide an array; the message has the path.
      TypeError: A leaf of `sharding` is not a sharding, or JAX cannot hold an array; the message has the path.
      RecursionError: `tree` is nested too deeply or contains itself.

    See Also: The guide "Donation and shardings".
    """

    def can_be_placed(leaf: Any) -> bool:
        return is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)

    shardings = array_shardings(sharding, tree, "sharding", "tree", can_be_placed)
    spec, arrays, rest = flat_partition(tree, can_be_placed)
    pairs = zip(arrays.items(), shardings, strict=True)
    return flat_combine(spec, {path: _placed(path, leaf, entry) for (path, leaf), entry in pairs}, rest)


def _placed(path: str, leaf: Any, sharding: Any) -> Any:
    if sharding is None:
        return leaf
    if isinstance(sharding, jax.Device):
        sharding = SingleDeviceSharding(sharding)
    if not isinstance(sharding, (Sharding, PartitionSpec)):
        raise TypeError(
            f"`tree{path}`: found a `{type(sharding).__name__}` as its sharding, expected a `jax.sharding.Sharding`, "
            "a device, a `jax.sharding.PartitionSpec`, or None to leave it where it is"
        )
    try:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf.update(sharding=sharding)
        if not under_trace() and not isinstance(leaf, Tracer):
            # A NumPy array is copied: on the CPU jax would share the user's memory, which may change later.
            return jax.device_put(leaf if isinstance(leaf, jax.Array) else np.array(leaf), sharding)
        return (jax.sharding.reshard if _is_explicit(sharding) else jax.lax.with_sharding_constraint)(leaf, sharding)
    except (TypeError, ValueError, NotImplementedError, AssertionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"`tree{path}`: found {array_text(leaf)}, expected an array that can have the sharding {sharding}; give it "
            f"another one, or None to leave it where it is. JAX says: {error}"
        ) from error


def _is_explicit(sharding: Any) -> bool:
    """Return whether a sharding is over a mesh with Explicit axes, and over no other axes of it."""
    if not isinstance(sharding, (NamedSharding, PartitionSpec)):
        return False
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else jax.sharding.get_abstract_mesh()
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    spec: Any = getattr(sharding, "spec", sharding)
    axes = {*jax.tree.leaves(tuple(spec))} - {PartitionSpec.UNCONSTRAINED}
    return AxisType.Explicit in types.values() and all(types.get(axis) is AxisType.Explicit for axis in axes)
