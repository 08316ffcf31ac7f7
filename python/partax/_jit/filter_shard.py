"""Placing the arrays of a tree on devices."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from partax._jax.private import under_trace
from partax._jit.shardings import array_shardings
from partax._pytree.array_text import array_text
from partax._pytree.filters import is_array
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.partition import PyTree


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
      ValueError: `sharding` is no prefix of `tree`, or does not divide an array; the message has the path.
      TypeError: a leaf of `sharding` is no sharding, or JAX cannot hold an array; likewise.
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
        groups.setdefault(_given if is_struct else _constrained if is_traced else _moved, []).append(path)
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
            except (TypeError, ValueError, NotImplementedError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(
                    f"`tree{path}`: found {array_text(leaf)}, expected an array that can have the sharding {sharding}; "
                    f"give it another one, or None to leave it where it is. JAX says: {error}"
                ) from error
        raise


def _given(structs: Sequence[Any], shardings: Sequence[Any]) -> Iterable[Any]:
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
            names = (names,) if isinstance(names, str) else names
            return tuple(axis for axis in names if (axis in explicit) == wanted)

        part = PartitionSpec(*map(own, spec))
        return part if named is None else NamedSharding(named.mesh, part, memory_kind=named.memory_kind)

    return over(True), over(False)
