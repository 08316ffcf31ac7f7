"""One program on many devices: filter_shard_map."""

import enum
from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec

from partax import _core
from partax._jax.programs import varying_axes
from partax._pytree.filters import is_array
from partax._pytree.methods import close_methods
from partax._pytree.partition import combine, partition
from partax._pytree.specs import misfit_text, misnamed_text, names_in, spec_names
from partax._transforms.objects import Objects
from partax._transforms.on_arrays import Rest, value_text
from partax._transforms.wrapper import Arguments, Transformed, transformation, wrapped


class _AsPlaced(enum.Enum):
    """The arguments are divided as their arrays are."""

    AS_PLACED = enum.auto()


class _ShardMap(Transformed[..., Any]):
    _name = "filter_shard_map"

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mesh, in_specs, out_specs, axis_names, check_vma = self._options
        as_placed = in_specs is _AsPlaced.AS_PLACED
        of_option: dict[str, Any] = {"prefix": None if as_placed else in_specs, "default": None, "option": "in_specs"}
        arguments = Arguments(self.__wrapped__, args, kwargs, is_entry=_is_spec, **of_option)
        function = Objects(self._name, zip(arguments.names, arguments.values, strict=True)).refuse_changes(
            self.__wrapped__
        )
        places = [i for i, leaf in enumerate(arguments.leaves) if is_array(leaf)]
        axes: Any = jax.sharding.get_abstract_mesh() if mesh is None else mesh
        sizes = {name: size for name, size in axes.shape.items() if not axis_names or name in axis_names}
        if sizes:  # else jax reports the missing mesh
            _check_names(out_specs, sizes)
        in_specs = [PartitionSpec()] * len(places)
        if not as_placed:
            in_specs = [_spec_of(arguments.entries[i], arguments.path(i)) for i in places]
            for i, spec in zip(places, in_specs, strict=True):
                reason = misfit_text(jnp.shape(arguments.leaves[i]), spec, sizes) if sizes else None
                if reason is not None:
                    raise _misfit(arguments.path(i), arguments.leaves[i], spec, "in_specs", reason)
        specs: dict[str, Any] = {} if as_placed else {"in_specs": (in_specs,)}

        has_run = False

        def run(arrays: list[Any]) -> Any:
            nonlocal has_run
            has_run = True
            out = arguments.call(function, places, arrays)
            _check_result(out, out_specs, sizes, check_vma)
            # A tree, which the specs are a prefix of; a user's node may refuse None for an array.
            arrays, rest = (out, None) if all(map(is_array, jax.tree.leaves(out))) else partition(out, is_array)
            return arrays, Rest(rest)

        everywhere = jax.tree.map(lambda spec: PartitionSpec() if spec is None else spec, out_specs, is_leaf=_is_spec)
        options: dict[str, Any] = {"mesh": mesh, "axis_names": axis_names, "check_vma": check_vma}
        mapped = jax.shard_map(run, **specs, out_specs=(everywhere, PartitionSpec()), **options)
        try:
            arrays, rest = mapped([arguments.leaves[i] for i in places])
        except ValueError as error:
            if not has_run and not as_placed and sizes:
                _check_placement(in_specs, arguments, places, axes, error)
            raise
        return close_methods(arrays if rest.value is None else combine(arrays, rest.value))


def _check_placement(specs: list[Any], arguments: Arguments, places: list[int], mesh: Any, error: ValueError) -> None:
    """Raise an error that names the first array whose sharding over Explicit axes is not its spec."""
    if AxisType.Explicit not in mesh.axis_types:
        return
    for i, spec in zip(places, specs, strict=True):
        leaf = arguments.leaves[i]
        placed = getattr(getattr(getattr(leaf, "aval", None), "sharding", None), "spec", PartitionSpec())
        if _axes_of(placed, jnp.ndim(leaf)) != _axes_of(spec, jnp.ndim(leaf)):
            raise ValueError(
                f"`{arguments.path(i)}`: found {value_text(leaf)} sharded as {placed}, expected {spec} of in_specs, as "
                "shard_map moves no array over Explicit axes; place it by `filter_shard`, or leave out in_specs"
            ) from error


def _axes_of(spec: Any, ndim: int) -> list[tuple[Any, ...]]:
    axes = [tuple(names_in(entry)) for entry in spec]
    return axes + [()] * (ndim - len(axes))


def _is_spec(node: Any) -> bool:
    return node is None or isinstance(node, PartitionSpec)


def _spec_of(entry: Any, path: str) -> Any:
    if not _is_spec(entry):
        raise TypeError(
            f"`{path}`: found {entry!r} in the specs, expected a `jax.sharding.PartitionSpec`, or None for "
            "what each device has whole"
        )
    return PartitionSpec() if entry is None else entry


def _misfit(path: str, leaf: Any, spec: Any, option: str, reason: str) -> ValueError:
    return ValueError(
        f"`{path}`: found {value_text(leaf)}, expected an array that can have {spec}, which {option} has for it, but "
        f"{reason}; give it another one"
    )


def _check_names(out_specs: Any, sizes: Mapping[Any, int]) -> None:
    """Raises if a spec names what is not an axis for it."""
    for path, entry in jax.tree_util.tree_leaves_with_path(out_specs, is_leaf=_is_spec):
        where = f"out_specs{jax.tree_util.keystr(path)}"
        reason = misnamed_text(_spec_of(entry, where), sizes)
        if reason is not None:
            raise ValueError(f"`{where}`: found {entry}, but {reason}; name axes of the mesh, each once")


def _check_result(out: Any, out_specs: Any, sizes: Mapping[Any, int], check_vma: bool) -> None:
    """Raises where a result on one device cannot be what the specs say."""
    pairs = _core.broadcast_prefix(out_specs, out, _is_spec, "out_specs", "the result")  # whose errors name paths
    for (path, leaf), (_, entry) in zip(jax.tree_util.tree_leaves_with_path(out), pairs, strict=True):
        if not is_array(leaf):
            continue
        spec = PartitionSpec() if entry is None else entry
        reason = misfit_text(jnp.shape(leaf), spec, sizes, divides=False)
        where = f"the result{jax.tree_util.keystr(path)}"
        if reason is not None:
            raise _misfit(where, leaf, spec, "out_specs", reason)
        differs = sorted(varying_axes(leaf) - {*spec_names(spec)}, key=str) if check_vma else []
        if differs:
            raise ValueError(
                f"`{where}`: found {value_text(leaf)} that differs along the mesh axis {differs[0]!r}, which {spec} of "
                "out_specs does not name; name it there, or reduce the array along it, as by `jax.lax.psum`"
            )


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
      TypeError: `fun` is not callable. When called: a spec is none.
      ValueError: when called: specs do not fit the arguments or the result; the message has the path.
    """
    return wrapped(_ShardMap, (mesh, in_specs, out_specs, frozenset(axis_names), check_vma), fun)
