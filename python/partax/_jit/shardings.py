"""Shardings of a call's arrays, from prefixes of the user's own trees; arrays of a tree placed on devices."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from partax import _core
from partax._jax.private import under_trace
from partax._jit.options import CallShape, Options, is_traced_array
from partax._pytree.filters import is_array
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.partition import PyTree
from partax._pytree.short_text import array_text
from partax._pytree.specs import misfit_text, names_in


def is_sharding_leaf(prefix: Any) -> bool:
    """Whether a part of a prefix is one sharding, for all that stands there."""
    return prefix is None or isinstance(prefix, (Sharding, PartitionSpec))


class PrefixOfValue:
    """A prefix that is made from the value that it is for."""

    def of(self, value: Any) -> Any:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class NoEntry(PrefixOfValue):
    """What stands in `in_shardings` for an argument that the user gives no entry for, and messages do not count."""

    def of(self, value: Any) -> Any:
        return None


def prefix_for(prefix: Any, tree: Any) -> Any:
    """A prefix of a tree in which each `PrefixOfValue` has made its part. If it is not a prefix, the other parts
    stay, from which `broadcast_prefix` reports that.
    """
    leaves, structure = jax.tree.flatten(
        prefix, is_leaf=lambda node: is_sharding_leaf(node) or isinstance(node, PrefixOfValue)
    )
    made = [isinstance(leaf, PrefixOfValue) for leaf in leaves]
    if not any(made):
        return prefix
    try:
        values = structure.flatten_up_to(tree)
    except ValueError:
        return structure.unflatten([None if is_made else leaf for is_made, leaf in zip(made, leaves, strict=True)])
    parts = zip(made, leaves, values, strict=True)
    return structure.unflatten([leaf.of(value) if is_made else leaf for is_made, leaf, value in parts])


def array_shardings(
    prefix: Any, tree: Any, option: str, root: str, is_traced: Callable[[Any], bool] = is_traced_array
) -> list[Any]:
    """The sharding for each traced leaf of `tree`, from a prefix of it; None where there is none."""
    pairs = _core.broadcast_prefix(prefix_for(prefix, tree), tree, is_sharding_leaf, option, root)
    return [sharding for leaf, sharding in pairs if is_traced(leaf)]


def _parts_of_call(prefix: tuple[Any, ...], call: CallShape) -> list[Any]:
    """The parts of `in_shardings` for the values of a call, from the first."""
    parameters, left_out, num_extra, keywords, _ = call
    parts = list(prefix)
    while len(parts) > len(parameters.names) + num_extra + len(keywords) and isinstance(parts[-1], NoEntry):
        parts.pop()
    return [part for i, part in enumerate(parts) if i not in left_out]  # a default that was left out is not an argument


def leaf_in_shardings(options: Options, call: CallShape, values: Sequence[Any]) -> list[Any]:
    """The explicit sharding of each input leaf of a call, or None."""
    prefix = options.in_shardings
    names, first = call.value_names, int(call.has_callable)  # where there is one, the callable comes first
    traces = [functools.partial(options.traces, own) for own in call.value_parameters]
    per_value: list[Any] = [None] * len(values)
    if isinstance(prefix, tuple) and not is_sharding_leaf(prefix):
        parts = _parts_of_call(prefix, call)
        num_entries = sum(not isinstance(part, NoEntry) for part in prefix)
        has_entries = f"in_shardings has {num_entries} {'entry' if num_entries == 1 else 'entries'}"
        if len(parts) > len(values) - first:
            every = call._replace(left_out=(), has_callable=False).value_names  # also those that a call leaves out
            takers = [name for name, part in zip_longest(every, prefix) if name and not isinstance(part, NoEntry)]
            raise ValueError(f"{has_entries}, expected at most one for each argument ({', '.join(takers)})")
        per_value[first : first + len(parts)] = parts
        for name, value, is_traced in list(zip(names, values, traces, strict=True))[first + len(parts) :]:
            if array_shardings(None, value, "in_shardings", name, is_traced):
                raise ValueError(f"{has_entries} and none for the arrays of `{name}`; use None to leave it to jax")
    else:
        per_value[first:] = [prefix] * (len(values) - first)
    shardings: list[Any] = []
    for name, value, part, is_traced in zip(names, values, per_value, traces, strict=True):
        shardings += array_shardings(part, value, "in_shardings", name, is_traced)
    return shardings


def misplaced_leaf(
    options: Options, call: CallShape, values: Sequence[Any], leaves: Sequence[Any], error: ValueError
) -> tuple[int, str] | None:
    """The first leaf of a call that `in_shardings` do not fit, and in what; None if all fit."""
    if options.in_shardings is None:
        return None
    shardings = leaf_in_shardings(options, call, values)
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
    """The explicit sharding of each array of a result, or None without out_shardings."""
    prefix = options.out_shardings
    if prefix is None:
        return None
    # Of an object that is changed in place, the result is a field of what the program returns.
    pairs = [(prefix, result)] if options.graph is None else list(zip(prefix, result, strict=True))
    own, value = pairs[0]
    if isinstance(own, (tuple, list)) and len(own) == 1 and not is_sharding_leaf(own) and is_traced_array(value):
        raise ValueError(
            f"`the result`: found {array_text(value)}, expected the structure of out_shardings, which has a "
            f"`{type(own).__name__}` with 1 child here; give its sharding without the `{type(own).__name__}`"
        )
    every = [array_shardings(part, value, "out_shardings", "the result") for part, value in pairs]
    return tuple(chain.from_iterable(every))


def filter_shard(tree: PyTree, sharding: Any) -> PyTree:
    """Places the arrays of a tree by a sharding, and leaves everything else as it is.

    Example:
      >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec
      >>> by_row = NamedSharding(Mesh(jax.devices(), ("data",)), PartitionSpec("data"))
      >>> batch = partax.filter_shard({"x": jnp.ones((8, 2)), "name": "train"}, by_row)
      >>> batch["x"].sharding == by_row, batch["name"]
      (True, 'train')

    Args:
      tree: any pytree. Its arrays, also NumPy arrays, are placed; a `jax.ShapeDtypeStruct` is given the sharding.
      sharding: one sharding for all arrays, or a pytree prefix of `tree` with shardings as its leaves, where None
        leaves arrays where they are. A sharding is a `jax.sharding.Sharding`, a device, or, within `jax.set_mesh`, a
        `jax.sharding.PartitionSpec`.

    Returns:
      A tree like it. An array that is already placed so is the same object.

    Raises:
      ValueError: `sharding` is not a prefix of `tree`, or does not divide an array; the message has the path.
      TypeError: a leaf of `sharding` is not a sharding, or JAX cannot hold an array; the message has the path.
      RecursionError: `tree` is nested too deeply or contains itself.

    Outside of functions that JAX transforms, arrays are moved by `jax.device_put`. It may use the memory of the given
    arrays for the placed ones: donate these, and the given ones are deleted too. Within
    them, the layout is prescribed at this point of the program: over the axes of a mesh that are `Auto` by
    `jax.lax.with_sharding_constraint`, over those that are `Explicit` by `jax.sharding.reshard`.
    """
    shardings = array_shardings(sharding, tree, "sharding", "tree", _can_be_placed)
    spec, arrays, rest = flat_partition(tree, _can_be_placed)
    chosen = {path: _checked(path, one) for path, one in zip(arrays, shardings, strict=True) if one is not None}
    inside = under_trace()
    groups: dict[_Place, list[str]] = {}
    for path in chosen:
        is_struct = isinstance(arrays[path], jax.ShapeDtypeStruct)
        is_traced = inside or isinstance(arrays[path], Tracer)
        groups.setdefault(_described if is_struct else _constrained if is_traced else _moved, []).append(path)
    for place, paths in groups.items():
        arrays.update(_placed(place, {path: (arrays[path], chosen[path]) for path in paths}))
    return flat_combine(spec, arrays, rest)


_Place = Callable[[Sequence[Any], Sequence[Any]], Iterable[Any]]  # places arrays by as many shardings


def _can_be_placed(leaf: Any) -> bool:
    return is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _checked(path: str, sharding: Any) -> Any:
    if isinstance(sharding, jax.Device):
        return SingleDeviceSharding(sharding)
    if isinstance(sharding, (Sharding, PartitionSpec)):
        return sharding
    raise TypeError(
        f"`tree{path}`: found a `{type(sharding).__name__}` as its sharding, expected a `jax.sharding.Sharding`, a "
        "device, a `jax.sharding.PartitionSpec`, or None to leave it where it is"
    )


def _placed(place: _Place, leaves: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """All at once; what fails is tried one by one, to say which it is."""
    arrays, shardings = zip(*leaves.values(), strict=True)
    try:
        return dict(zip(leaves, place(arrays, shardings), strict=True))
    except Exception:
        for path, (leaf, sharding) in leaves.items():
            try:
                place([leaf], [sharding])
            except Exception as error:
                reason = _misfit_text(leaf, sharding)
                if reason is None and not isinstance(error, (TypeError, ValueError, NotImplementedError)):
                    raise
                kind = TypeError if reason is None and isinstance(error, TypeError) else ValueError
                raise kind(
                    f"`tree{path}`: found {array_text(leaf)}, expected an array that can have the sharding {sharding}, "
                    f"but {reason or 'it cannot'}; give it another one, or None to leave it where it is"
                    f"{'' if reason else f'. JAX says: {error}'}"
                ) from error
        raise


def _misfit_text(leaf: Any, sharding: Any) -> str | None:
    """Why an array that jax does not place cannot have a sharding, where its mesh tells."""
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else jax.sharding.get_abstract_mesh()
    if isinstance(sharding, NamedSharding) or (isinstance(sharding, PartitionSpec) and not mesh.empty):
        spec: Any = sharding.spec if isinstance(sharding, NamedSharding) else sharding
        return misfit_text(np.shape(leaf), spec, mesh.shape)
    if isinstance(sharding, PartitionSpec):
        return "no mesh is set: use it within `jax.set_mesh`, or make it a `jax.sharding.NamedSharding`"
    return None


def _described(structs: Sequence[Any], shardings: Sequence[Any]) -> Iterable[Any]:
    return [struct.update(sharding=sharding) for struct, sharding in zip(structs, shardings, strict=True)]


def _moved(arrays: Sequence[Any], shardings: Sequence[Any]) -> Iterable[Any]:
    # NumPy arrays are copied: on the CPU jax would share the user's memory, which may change later.
    own = [array if isinstance(array, jax.Array) else np.array(array) for array in arrays]
    return jax.device_put(own, list(shardings))


def _constrained(arrays: Sequence[Any], shardings: Sequence[Any]) -> Iterable[Any]:
    parts = list(map(_by_axis_type, shardings))
    placed = list(arrays)
    for constrain, which in ((jax.sharding.reshard, 0), (jax.lax.with_sharding_constraint, 1)):
        at = [i for i, part in enumerate(parts) if part[which] is not None]
        if at:
            some = constrain([placed[i] for i in at], [parts[i][which] for i in at])
            for i, array in zip(at, some, strict=True):
                placed[i] = array
    return placed


def _by_axis_type(sharding: Any) -> tuple[Any, Any]:
    """What of a sharding is over Explicit axes of its mesh, and what over the others; None where there are none."""
    if not isinstance(sharding, (NamedSharding, PartitionSpec)):
        return None, sharding
    named = sharding if isinstance(sharding, NamedSharding) else None
    mesh = jax.sharding.get_abstract_mesh() if named is None else named.mesh
    spec: Any = sharding if named is None else named.spec
    explicit = {name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind is AxisType.Explicit}
    if not explicit:
        return None, sharding
    if len(explicit) == len(mesh.axis_names):
        return sharding, None

    def over(wanted: bool) -> Any:
        """With those of each dimension's axes that are Explicit, or those that are not."""

        def own(names: Any) -> Any:
            if names is None or names is PartitionSpec.UNCONSTRAINED:
                return None if wanted else names
            return tuple(axis for axis in names_in(names) if (axis in explicit) == wanted)

        part = PartitionSpec(*map(own, spec))
        return part if named is None else NamedSharding(named.mesh, part, memory_kind=named.memory_kind)

    return over(True), over(False)
