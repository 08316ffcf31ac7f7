"""filter_shard_map: one program on each device, on its part of the arrays."""

import enum
from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from partax import _core
from partax._pytree.filters import is_array
from partax._pytree.partition import combine, partition
from partax._transforms.arguments import Arguments
from partax._transforms.on_arrays import Rest
from partax._transforms.wrapper import Transformed, transformation, wrapped


class _AsPlaced(enum.Enum):
    """The arguments are divided as their arrays are."""

    AS_PLACED = enum.auto()


class _ShardMap(Transformed[..., Any]):
    """What `filter_shard_map` returns."""

    _name = "filter_shard_map"
    _is_called_as_wrapped = True

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mesh, in_specs, out_specs, axis_names, check_vma = self._options
        as_placed = in_specs is _AsPlaced.AS_PLACED
        given = Arguments(
            self.__wrapped__,
            args,
            kwargs,
            prefix=None if as_placed else in_specs,
            default=None,
            is_entry=_is_spec,
            option="in_specs",
        )
        places = [i for i, leaf in enumerate(given.leaves) if is_array(leaf)]
        specs = {} if as_placed else {"in_specs": ([_spec_of(given.entries[i]) for i in places],)}

        def run(arrays: list[Any]) -> Any:
            out = given.call(self.__wrapped__, places, arrays)
            _core.broadcast_prefix(out_specs, out, _is_spec, "out_specs", "the result")  # whose errors name paths
            # A tree, which the specs are a prefix of; a user's node may refuse None for an array.
            arrays, rest = (out, None) if all(map(is_array, jax.tree.leaves(out))) else partition(out, is_array)
            return arrays, Rest(rest)

        everywhere = jax.tree.map(_spec_of, out_specs, is_leaf=_is_spec)
        options = {"mesh": mesh, "axis_names": axis_names, "check_vma": check_vma}
        mapped = jax.shard_map(run, **specs, out_specs=(everywhere, PartitionSpec()), **options)
        arrays, rest = mapped([given.leaves[i] for i in places])
        return arrays if rest.value is None else combine(arrays, rest.value)


def _is_spec(node: Any) -> bool:
    return node is None or isinstance(node, PartitionSpec)


def _spec_of(entry: Any) -> Any:
    if not _is_spec(entry):
        raise TypeError(
            f"filter_shard_map: found {entry!r} in the specs, expected a `jax.sharding.PartitionSpec`, or None for "
            "what each device has whole"
        )
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
      out_specs: how those of the result are: a prefix of it likewise.
      axis_names: as of `jax.shard_map`.
      check_vma: as of `jax.shard_map`.

    Returns:
      A function of the same arguments, by position or by name. A leaf of the result that is no array comes back as the
      function returned it. Without `fun`, a decorator.

    Raises:
      TypeError: `fun` is not callable. When called: a spec is none.
      ValueError: when called: specs do not fit the arguments or the result; the message has the path.
    """
    return wrapped(_ShardMap, (mesh, in_specs, out_specs, frozenset(axis_names), check_vma), fun)
