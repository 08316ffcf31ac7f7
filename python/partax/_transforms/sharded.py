"""One program on many devices: filter_shard_map."""

import enum
from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from partax._pytree.filters import is_array
from partax._pytree.methods import close_methods
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
        arrays = {i: leaf for i, leaf in enumerate(arguments.leaves) if is_array(leaf)}
        call = arguments.on_nodes(self._name, arrays)
        rest: Any = None

        def run(*nodes: Any) -> Any:
            nonlocal rest
            out = call(*nodes)
            if all(map(is_array, jax.tree.leaves(out))):  # a user's node may refuse None
                return out
            arrays, rest = partition(out, is_array)
            return arrays

        specs: dict[str, Any] = {}
        if has_specs:
            specs["in_specs"] = tuple(arguments.nodes({i: _spec_or_whole(arguments.entries[i]) for i in arrays}))
        out_specs = jax.tree.map(_spec_or_whole, out_specs, is_leaf=_is_spec)
        mapped = jax.shard_map(arguments.describe_to_jax(run), **specs, out_specs=out_specs, **dict(options))
        out = mapped(*arguments.nodes(arrays))
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
    """`jax.shard_map` for any trees: each device runs `fun` on its part of the arrays, everything else is passed on.

    Example:
      >>> from jax.sharding import Mesh, PartitionSpec
      >>> mesh, by_row, whole = Mesh(jax.devices(), ("data",)), PartitionSpec("data"), PartitionSpec()
      >>> def total(batch, scale):
      ...     return jax.lax.psum(batch["x"].sum() * scale, "data")
      >>> summed = partax.filter_shard_map(total, mesh=mesh, in_specs=(by_row, None), out_specs=whole)
      >>> summed({"x": jnp.ones(8), "name": "train"}, 0.5)
      Array(4., dtype=float32)

    Args:
      fun: a function of any trees, with any result. Arrays that it holds itself, as a module does, each device has
        whole.
      mesh: the devices; None: those of `jax.set_mesh`.
      in_specs: how the arrays of the arguments are divided: one `jax.sharding.PartitionSpec` for all arguments; a tuple
        of them, or of trees of them that are prefixes of the arguments, one for each argument by position; or a
        dictionary from names of arguments to such. None, and what says nothing of an argument: each device has all of
        it. Not given: as the arrays are, over axes that are `Explicit`.
      out_specs: how those of the result are: a prefix of it, too.
      axis_names: same as in `jax.shard_map`.
      check_vma: same as in `jax.shard_map`.

    Returns:
      A function of the same arguments, by position or by name. A leaf of the result that is not an array comes back as
      the function returned it. Without `fun`, a decorator.

    Raises:
      TypeError: `fun` is not callable. When called: a leaf of the specs is not a spec; the message has the path.
      ValueError: when called: specs do not fit the arguments or the result; the message has the path. Most messages are
        those of `jax.shard_map`.
    """
    options = ("mesh", mesh), ("axis_names", frozenset(axis_names)), ("check_vma", check_vma)
    return wrapped(_ShardMap, (in_specs, out_specs, options), fun)
