"""One program on many devices: filter_shard_map."""

import enum
from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from partax._pytree.filters import is_array
from partax._pytree.methods import close_methods, open_methods
from partax._pytree.partition import combine, partition
from partax._transforms.arguments import Arguments
from partax._transforms.wrapper import Transformed, transformation, wrapped


class _AsPlaced(enum.Enum):
    """The arguments are divided as their arrays are."""

    AS_PLACED = enum.auto()


class _ShardMap(Transformed[..., Any]):
    _name = "filter_shard_map"

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        in_specs, out_specs, options = self._options
        has_specs = in_specs is not _AsPlaced.AS_PLACED
        arguments = Arguments(
            self.__wrapped__,
            args,
            kwargs,
            prefix=in_specs if has_specs else None,
            default=None,
            is_entry=_is_spec,
            option="in_specs",
        )
        splits, specs = arguments.split(lambda _, leaf, spec: _spec_or_whole(spec) if is_array(leaf) else None)
        rest: Any = None

        def arrays_of(out: Any) -> Any:
            nonlocal rest
            out = open_methods(out)
            if all(map(is_array, jax.tree.leaves(out))):  # a user's node may refuse None
                return out
            arrays, rest = partition(out, is_array)
            return arrays

        more: dict[str, Any] = dict(options) | ({"in_specs": specs} if has_specs else {})
        out_specs = jax.tree.map(_spec_or_whole, out_specs, is_leaf=_is_spec)
        run = arguments.on_splits(self._name, arrays_of)
        out = jax.shard_map(run, out_specs=out_specs, **more)(*splits)
        return close_methods(out if rest is None else combine(out, rest))


def _is_spec(node: Any) -> bool:
    return node is None or isinstance(node, PartitionSpec)


def _spec_or_whole(entry: Any) -> Any:
    return PartitionSpec() if entry is None else entry


@transformation
def filter_shard_map(
    fun: Callable[..., Any] | None = None,
    *,
    mesh: Mesh | AbstractMesh | None = None,
    in_specs: Any = _AsPlaced.AS_PLACED,
    out_specs: Any,
    axis_names: AbstractSet[Hashable] = frozenset(),
    check_vma: bool = True,
) -> Any:
    """Run a function on each device's part of the arrays. Same as `jax.shard_map`, for any pytree: everything else is
    passed unchanged.

    Example:
      >>> from jax.sharding import Mesh, PartitionSpec
      >>> mesh, by_row, whole = Mesh(jax.devices(), ("data",)), PartitionSpec("data"), PartitionSpec()
      >>> def total(batch, scale):
      ...     return jax.lax.psum(batch["x"].sum() * scale, "data")
      >>> summed = partax.filter_shard_map(total, mesh=mesh, in_specs=(by_row, None), out_specs=whole)
      >>> summed({"x": jnp.ones(8), "name": "train"}, 0.5)
      Array(4., dtype=float32)

    Args:
      fun: A function of any trees, with any result. Each device has all of the arrays that it holds itself, as a module
        does. Default: return a decorator.
      mesh: The devices. Default: those of `jax.set_mesh`.
      in_specs: One `jax.sharding.PartitionSpec` for the arrays of all arguments; a tuple of specs, or of trees of them
        that are prefixes of the arguments, one for each argument by position; or a dictionary from names of arguments
        to these. With None, or without an entry, each device has all of an argument. Default: the specs of the arrays,
        over axes that are `Explicit`.
      out_specs: The same for the result: a prefix of it.
      axis_names: Same as in `jax.shard_map`. Default: none.
      check_vma: Same as in `jax.shard_map`. Default: True.

    Returns:
      A function of the same arguments, by position or by name. Leaves of the result that are not arrays are unchanged.

    Raises:
      TypeError: `fun` is not callable. When called: a leaf of the specs is not a spec; the message has the path.
      ValueError: When called: specs do not fit the arguments or the result; the message has the path. Most messages are
        those of `jax.shard_map`.

    See Also:
      The guide "Several devices and processes".
    """
    options = ("mesh", mesh), ("axis_names", frozenset(axis_names)), ("check_vma", check_vma)
    return wrapped(_ShardMap, _ShardMap._name, (in_specs, out_specs, options), fun)
