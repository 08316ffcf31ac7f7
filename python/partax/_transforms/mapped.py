"""One program for many values along an axis: filter_vmap."""

from collections.abc import Callable, Hashable
from numbers import Integral
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from partax import _core
from partax._pytree.filters import is_array
from partax._pytree.methods import close_methods
from partax._pytree.partition import is_none, partition
from partax._transforms.objects import Objects
from partax._transforms.on_arrays import Rest, value_text
from partax._transforms.wrapper import Arguments, Transformed, transformation, wrapped


def _first_axis(leaf: Any) -> int | None:
    """The first axis of an array, and none of anything else."""
    return 0 if is_array(leaf) else None


class _Vmap(Transformed[..., Any]):
    _name = "filter_vmap"

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        in_axes, out_axes, axis_size, names = self._options
        arguments = Arguments(
            self.__wrapped__, args, kwargs, prefix=in_axes, default=_first_axis, is_entry=is_none, option="in_axes"
        )
        function = Objects(self._name, zip(arguments.names, arguments.values, strict=True)).refuse_changes(
            self.__wrapped__
        )
        pairs = zip(arguments.leaves, arguments.entries, strict=True)
        axes = [_axis_of(i, leaf, entry, "in_axes", arguments.path) for i, (leaf, entry) in enumerate(pairs)]
        mapped = [i for i, axis in enumerate(axes) if axis is not None]
        _check_sizes(arguments, axes, axis_size)

        def on_one(arrays: list[Any]) -> Any:
            out = arguments.call(function, mapped, arrays)
            return _split(out, out_axes)

        values = [arguments.leaves[i] for i in mapped]
        if not mapped and axis_size is None:
            stacked, unstacked, result = on_one(values)
            if stacked:
                raise ValueError(
                    f"{self.__name__}() under filter_vmap has no argument with an axis, so the size of its result is "
                    "not known; give `axis_size`, or out_axes=None"
                )
            return result.value.joined(stacked, unstacked)
        run = jax.vmap(
            on_one, in_axes=([axes[i] for i in mapped],), out_axes=(0, None, None), axis_size=axis_size, **dict(names)
        )
        stacked, unstacked, result = run(values)
        return result.value.joined(stacked, unstacked)


class _Result(NamedTuple):
    """What is known of a result when the function was run: its leaves that are not arrays, and where arrays go."""

    structure: Any
    leaves: list[Any]  # with None for arrays
    axes: list[int | None]  # of each leaf

    def joined(self, stacked: list[Any], unstacked: list[Any]) -> Any:
        """The result, of arrays with the axis as their first, and of those without it."""
        stacked_arrays = iter(stacked)
        leaves = list(self.leaves)
        for i, axis in enumerate(self.axes):
            if axis is not None:
                array = next(stacked_arrays)
                leaves[i] = jnp.moveaxis(array, 0, axis) if axis else jnp.asarray(array)
            elif unstacked[i] is not None:
                leaves[i] = unstacked[i]
        return close_methods(jax.tree.unflatten(self.structure, leaves))


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
        if axis is not None and not _can_have_axis(leaf):
            raise TypeError(
                f"`{path(i)}`: found {value_text(leaf)}, expected an array, since out_axes has the axis {axis} for it; "
                "give None there, or a function of the leaf that returns it for what is not an array"
            )
        ndim = jnp.ndim(leaf) + 1 if axis is not None else 0
        if axis is not None and not -ndim <= axis < ndim:
            raise ValueError(
                f"`{path(i)}`: found the axis {axis} in out_axes, expected one from {-ndim} to {ndim - 1}, since it is "
                f"{value_text(leaf)} before the axis is put in"
            )
    stacked = [leaf for leaf, axis in zip(leaves, axes, strict=True) if axis is not None]
    unstacked, rest = partition(
        [leaf if axis is None else None for leaf, axis in zip(leaves, axes, strict=True)], is_array
    )
    return stacked, unstacked, Rest(_Result(structure, rest, axes))


def _can_have_axis(leaf: Any) -> bool:
    if isinstance(leaf, jax.Array):
        return True
    try:
        jax.eval_shape(lambda: leaf)  # a number can
    except TypeError:
        return False
    return True


def _axis_of(index: int, leaf: Any, entry: Any, option: str, path: Callable[[int], str]) -> int | None:
    axis = entry(leaf) if callable(entry) else entry
    if axis is None or (isinstance(axis, int) and not isinstance(axis, bool)):
        return axis
    what = "an axis" if axis is entry else "a function that returned"
    raise ValueError(
        f"`{path(index)}`: found {what} `{axis!r}` in {option}, expected None, an int, or a function (leaf) -> None or "
        "int"
    )


def _check_sizes(arguments: Arguments, axes: list[int | None], axis_size: int | None) -> None:
    """Raises a ValueError where the arguments do not agree about the size of the axis."""
    first = None if axis_size is None else (f"axis_size is {axis_size}", axis_size)
    for i, axis in enumerate(axes):
        if axis is None:
            continue
        leaf = arguments.leaves[i]
        shape = jnp.shape(leaf) if is_array(leaf) else ()
        if not -len(shape) <= axis < len(shape):
            raise ValueError(
                f"`{arguments.path(i)}`: found {value_text(leaf)}, expected an array that has an axis {axis}, as "
                "in_axes says; None in in_axes passes it on as it is"
            )
        size = shape[axis]
        if first is None:
            first = (f"{arguments.path(i)} has size {size} along axis {axis}", size)
        elif first[1] != size:
            raise ValueError(
                f"found axes of different sizes, expected one: {first[0]}, {arguments.path(i)} has {size} along axis "
                f"{axis}"
            )


@transformation
def filter_vmap(
    fun: Callable[..., Any] | None = None,
    *,
    in_axes: Any = _first_axis,
    out_axes: Any = _first_axis,
    axis_name: Hashable = None,
    axis_size: int | None = None,
    spmd_axis_name: Hashable = None,
) -> Any:
    """`jax.vmap` for any trees: arrays get an axis, everything else is passed on as it is.

    Example:
      >>> def predict(model, x):
      ...     return model["activation"](model["weight"] @ x)
      >>> model = {"weight": jnp.ones((2, 3)), "activation": jax.nn.relu}
      >>> batched = partax.filter_vmap(predict, in_axes={"model": None, "x": 0})
      >>> batched(model, jnp.ones((5, 3))).shape
      (5, 2)

    An axis is an int; None, for what has no axis; or a function `(leaf) -> int or None`. As the entry of a part of a
    tree, it is for all leaves of that part.

    Args:
      fun: a function of any trees. Arrays that it holds itself, as a module does, have no axis.
      in_axes: one axis for all arguments; a tuple of axes, or of trees of axes that are prefixes of the arguments, one
        for each argument by position; or a dictionary from names of arguments to such, where what it does not name has
        the axis 0 where it is an array, and the names of `*args` and `**kwargs` stand for all in them. With a tuple,
        arguments that can only be given by name have that too.
      out_axes: where the axis goes in the result: an axis, or a tree of axes that is a prefix of the result.
      axis_name: a name of the axis, for `jax.lax.psum` and the like.
      axis_size: how long the axis is, where no argument has it.
      spmd_axis_name: same as in `jax.vmap`.

    Returns:
      A function of the same arguments, by position or by name. A leaf of the result that is not an array comes back as
      the function returned it. Without `fun`, a decorator.

    Raises:
      TypeError: `fun` cannot be called, or `axis_size` is not a number. When called: out_axes has an
        axis for what is not an array; the message has the path.
      ValueError: when called: axes do not fit the arguments or the result, or the arguments do not agree about the size
        of the axis; the message has the path.
    """
    if axis_size is not None and not isinstance(axis_size, Integral):
        raise TypeError(f"`axis_size`: found {axis_size!r}, expected a Python number, as in axis_size=3")
    names = ("axis_name", axis_name), ("spmd_axis_name", spmd_axis_name)
    return wrapped(_Vmap, (in_axes, out_axes, axis_size, names), fun)
