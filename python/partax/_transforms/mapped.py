"""One program for many values along an axis, and on many devices: filter_vmap and filter_shard_map."""

import enum
import re
from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from numbers import Integral
from typing import Any, NamedTuple, Never

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from partax import _core
from partax._pytree.filters import is_array
from partax._pytree.partition import combine, is_none, partition
from partax._transforms.on_arrays import Rest, value_text
from partax._transforms.wrapper import Arguments, Transformed, transformation, wrapped


def _if_array(leaf: Any) -> int | None:
    """The first axis of an array, and none of anything else."""
    return 0 if is_array(leaf) else None


class _Vmap(Transformed[..., Any]):
    _name = "filter_vmap"

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        in_axes, out_axes, axis_size, options = self._options
        given = Arguments(
            self.__wrapped__, args, kwargs, prefix=in_axes, default=_if_array, is_entry=is_none, option="in_axes"
        )
        pairs = zip(given.leaves, given.entries, strict=True)
        axes = [_axis_of(i, leaf, entry, "in_axes", given.path) for i, (leaf, entry) in enumerate(pairs)]
        mapped = [i for i, axis in enumerate(axes) if axis is not None]
        _check_sizes(given, axes, axis_size)

        def on_one(arrays: list[Any]) -> Any:
            out = given.call(self.__wrapped__, mapped, arrays)
            stacked, kept, rest = _split(out, out_axes)
            if any(array is not None for array in kept):
                kept_at[:] = [path for path, _ in jax.tree_util.tree_leaves_with_path(out)]
            return stacked, kept, rest

        kept_at: list[Any] = []  # where the leaves of the result are, for an error about those without an axis
        values = [given.leaves[i] for i in mapped]
        if not mapped and axis_size is None:
            stacked, kept, result = on_one(values)
            if stacked:
                raise ValueError(
                    f"{self.__name__}() under filter_vmap has no argument with an axis, so the size of its result is "
                    "not known; give `axis_size`, or out_axes=None"
                )
            return result.value.joined(stacked, kept)
        run = jax.vmap(
            on_one, in_axes=([axes[i] for i in mapped],), out_axes=(0, None, None), axis_size=axis_size, **dict(options)
        )
        try:
            stacked, kept, result = run(values)
        except ValueError as error:
            found = re.match(r"at vmap out_axes\[1\]\[(\d+)\], got axis spec None", str(error))
            if found is None:
                raise
            path = jax.tree_util.keystr(kept_at[int(found[1])])
            raise ValueError(
                f"`the result{path}`: found an array that differs along the axis, but out_axes has None for it; give "
                "it an axis"
            ) from error
        return result.value.joined(stacked, kept)


class _Result(NamedTuple):
    """What is known of a result when the function was run: its leaves that are no arrays, and where arrays go."""

    structure: Any
    leaves: list[Any]  # with None for arrays
    axes: list[int | None]  # of each leaf

    def joined(self, stacked: list[Any], kept: list[Any]) -> Any:
        """The result, of arrays with the axis as their first, and of those without it."""
        stacked_arrays = iter(stacked)
        leaves = list(self.leaves)
        for i, axis in enumerate(self.axes):
            if axis is not None:
                array = next(stacked_arrays)
                leaves[i] = jnp.moveaxis(array, 0, axis) if axis else jnp.asarray(array)
            elif kept[i] is not None:
                leaves[i] = kept[i]
        return jax.tree.unflatten(self.structure, leaves)


def _split(out: Any, out_axes: Any) -> tuple[list[Any], list[Any], Rest]:
    """The arrays of a result that get the axis, the others with None for each other leaf, and the rest."""
    leaves, structure = jax.tree.flatten(out)
    pairs = _core.broadcast_prefix(out_axes, out, is_none, "out_axes", "the result")

    def path(i: int) -> str:
        return f"the result{jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(out)[i][0])}"

    axes: list[int | None] = []
    for i, (leaf, (_, entry)) in enumerate(zip(leaves, pairs, strict=True)):
        axis = _axis_of(i, leaf, entry, "out_axes", path)
        axes.append(axis)
        ndim = jnp.ndim(leaf) + 1 if axis is not None else 0
        if axis is not None and not -ndim <= axis < ndim:
            raise ValueError(
                f"`{path(i)}`: found the axis {axis} in out_axes, expected one from {-ndim} to {ndim - 1}, since it is "
                f"{value_text(leaf)} before the axis is put in"
            )
    stacked = [leaf for leaf, axis in zip(leaves, axes, strict=True) if axis is not None]
    kept, rest = partition([leaf if axis is None else None for leaf, axis in zip(leaves, axes, strict=True)], is_array)
    return stacked, kept, Rest(_Result(structure, rest, axes))


def _axis_of(index: int, leaf: Any, entry: Any, option: str, path: Callable[[int], str]) -> int | None:
    axis = entry(leaf) if callable(entry) else entry
    if axis is None or (isinstance(axis, int) and not isinstance(axis, bool)):
        return axis
    what = "an axis" if axis is entry else "a function that returned"
    raise ValueError(
        f"`{path(index)}`: found {what} `{axis!r}` in {option}, expected None, an int, or a function (leaf) -> None or "
        "int"
    )


def _check_sizes(given: Arguments, axes: list[int | None], axis_size: int | None) -> None:
    """Raises a ValueError where the arguments do not agree about the size of the axis."""
    first = None if axis_size is None else (f"axis_size is {axis_size}", axis_size)
    for i, axis in enumerate(axes):
        if axis is None:
            continue
        leaf = given.leaves[i]
        shape = jnp.shape(leaf) if is_array(leaf) else ()
        if not -len(shape) <= axis < len(shape):
            raise ValueError(
                f"`{given.path(i)}`: found {value_text(leaf)}, expected an array that has an axis {axis}, as in_axes "
                "says; None in in_axes passes it on as it is"
            )
        size = shape[axis]
        if first is None:
            first = (f"{given.path(i)} has size {size} along axis {axis}", size)
        elif first[1] != size:
            raise ValueError(
                f"found axes of different sizes, expected one: {first[0]}, {given.path(i)} has {size} along axis {axis}"
            )


@transformation
def filter_vmap(
    fun: Callable[..., Any] | None = None,
    *,
    in_axes: Any = _if_array,
    out_axes: Any = _if_array,
    axis_name: Hashable = None,
    axis_size: int | None = None,
    spmd_axis_name: Hashable = None,
    **options: Never,
) -> Any:
    """`jax.vmap` for any trees: arrays get an axis, everything else is passed on as it is.

    Example:
      >>> def predict(model, x):
      ...     return model["activation"](model["weight"] @ x)
      >>> model = {"weight": jnp.ones((2, 3)), "activation": jax.nn.relu}
      >>> batched = partax.filter_vmap(predict, in_axes={"model": None, "x": 0})
      >>> batched(model, jnp.ones((5, 3))).shape
      (5, 2)

    An axis is an int; None, for what has no axis; or a function `(leaf) -> int or None`. Where it stands for a part of
    a tree, it is for all leaves of that part.

    Args:
      fun: a function of any trees. Arrays that it holds itself, as a module does, have no axis.
      in_axes: one axis for all arguments; a tuple of axes, or of trees of axes that are prefixes of the arguments, one
        for each argument by position; or a dictionary from names of arguments to such, where what it does not name has
        the axis 0 where it is an array, and the names of `*args` and `**kwargs` stand for all in them. With a tuple,
        arguments that can only be given by name have that too.
      out_axes: where the axis goes in the result: an axis, or a tree of axes that is a prefix of the result.
      axis_name: a name of the axis, for `jax.lax.psum` and the like.
      axis_size: how long the axis is, where no argument has it.
      spmd_axis_name: as of `jax.vmap`.

    Returns:
      A function of the same arguments, by position or by name. A leaf of the result that is no array comes back as the
      function returned it. Without `fun`, a decorator.

    Raises:
      TypeError: `fun` cannot be called, an option is unknown, or `axis_size` is no number.
      ValueError: when called: axes do not fit the arguments or the result, or the arguments do not agree about the size
        of the axis; the message has the path.
    """
    if axis_size is not None and not isinstance(axis_size, Integral):
        raise TypeError(f"`axis_size`: found {axis_size!r}, expected a Python number, as in axis_size=3")
    named: dict[str, Any] = {**options, "axis_name": axis_name, "spmd_axis_name": spmd_axis_name}
    given = {name: value for name, value in named.items() if value is not None}
    jax.vmap(len, **given)  # which raises for an option that this jax does not have
    return wrapped(_Vmap, (in_axes, out_axes, axis_size, tuple(sorted(given.items()))), fun)


class _AsPlaced(enum.Enum):
    """The arguments are divided as their arrays are."""

    AS_PLACED = enum.auto()


class _ShardMap(Transformed[..., Any]):
    _name = "filter_shard_map"

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mesh, in_specs, out_specs, axis_names, check_vma = self._options
        as_placed = in_specs is _AsPlaced.AS_PLACED
        of_option: dict[str, Any] = {"prefix": None if as_placed else in_specs, "default": None, "option": "in_specs"}
        given = Arguments(self.__wrapped__, args, kwargs, is_entry=_is_spec, **of_option)
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
