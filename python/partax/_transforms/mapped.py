"""One program for many values along an axis: filter_vmap."""

from collections.abc import Callable, Hashable
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from partax import _core
from partax._pytree.filters import is_array, is_array_like
from partax._pytree.methods import close_methods
from partax._pytree.partition import combine, is_none
from partax._transforms.arguments import Arguments
from partax._transforms.on_arrays import Rest, Split, joined, split, value_text
from partax._transforms.wrapper import Transformed, transformation, wrapped


def _first_axis(leaf: Any) -> int | None:
    return 0 if is_array(leaf) else None


class _Vmap(Transformed[..., Any]):
    _name = "filter_vmap"

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        in_axes, out_axes, options = self._options
        arguments = Arguments(
            self.__wrapped__, args, kwargs, prefix=in_axes, default=_first_axis, is_entry=is_none, option="in_axes"
        )
        axes: dict[int, int] = {}
        for i, (leaf, entry) in enumerate(zip(arguments.leaves, arguments.entries, strict=True)):
            ndim = np.ndim(leaf) if is_array(leaf) else 0
            axis = _axis_of(leaf, entry, ndim, lambda i=i: arguments.path(i), "in_axes")
            if axis is not None:
                axes[i] = axis
        call = arguments.on_nodes(self._name, axes)

        def on_one(*nodes: Any) -> Any:
            return _split_by_axis(call(*nodes), out_axes)

        leaves = arguments.nodes({i: arguments.leaves[i] for i in axes})
        if axes or dict(options)["axis_size"] is not None:
            run = arguments.describe_to_jax(on_one)
            mapped = jax.vmap(run, in_axes=tuple(arguments.nodes(axes)), out_axes=(0, None, None), **dict(options))
            stacked, unstacked, rest = mapped(*leaves)
        else:
            stacked, unstacked, rest = on_one(*leaves)
            if jax.tree.leaves(stacked):
                raise ValueError(
                    f"{self.__name__}() under filter_vmap has no argument with an axis, so the size of its result is "
                    "not known; give `axis_size`, or out_axes=None"
                )
        axes_of_result, structure = rest.value
        moved = [
            None if axis is None else jnp.moveaxis(leaf, 0, axis)
            for leaf, axis in zip(stacked, axes_of_result, strict=True)
        ]
        return close_methods(jax.tree.unflatten(structure, combine(moved, joined(unstacked))))


def _split_by_axis(out: Any, out_axes: Any) -> tuple[list[Any], Split, Rest]:
    """The leaves of a result that get the axis, with None for the rest; the rest; and the axes with the structure."""
    leaves, structure = jax.tree.flatten(out)
    pairs = _core.broadcast_prefix(out_axes, out, is_none, "out_axes", "the result")

    def path(i: int) -> str:
        return f"the result{jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(out)[i][0])}"

    axes: list[int | None] = []
    for i, (leaf, (_, entry)) in enumerate(zip(leaves, pairs, strict=True)):
        ndim = jnp.ndim(leaf) + 1 if is_array_like(leaf) else 0
        axes.append(_axis_of(leaf, entry, ndim, lambda i=i: path(i), "out_axes"))
    stacked = [None if axis is None else leaf for leaf, axis in zip(leaves, axes, strict=True)]
    unstacked = [leaf if axis is None else None for leaf, axis in zip(leaves, axes, strict=True)]
    return stacked, split(unstacked), Rest((axes, structure))


def _axis_of(leaf: Any, entry: Any, ndim: int, path: Callable[[], str], option: str) -> int | None:
    axis = entry(leaf) if callable(entry) else entry
    if axis is None:
        return None
    if not isinstance(axis, int) or isinstance(axis, bool):
        what = "an axis" if axis is entry else "a function that returned"
        raise ValueError(
            f"`{path()}`: found {what} `{axis!r}` in {option}, expected None, an int, or a function (leaf) -> None or "
            "int"
        )
    if not -ndim <= axis < ndim:
        kind = ValueError if is_array_like(leaf) else TypeError
        raise kind(
            f"`{path()}`: found {value_text(leaf)}, expected an array that can have the axis {axis} of {option}; give "
            "None there, or a function of the leaf that returns it"
        )
    return axis


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
    """Map a function over an axis of arrays. Same as `jax.vmap`, for any pytree: everything else is passed unchanged.

    Example:
      >>> def predict(model, x):
      ...     return model["activation"](model["weight"] @ x)
      >>> model = {"weight": jnp.ones((2, 3)), "activation": jax.nn.relu}
      >>> batched = partax.filter_vmap(predict, in_axes={"model": None, "x": 0})
      >>> batched(model, jnp.ones((5, 3))).shape
      (5, 2)

    An axis is an int; None, for no axis; or a function `(leaf) -> int or None`. As the entry of a part of a tree, it is
    for all leaves of that part.

    Args:
      fun: A function of any trees. Arrays that it holds itself, as a module does, have no axis. Default: return a
        decorator.
      in_axes: One axis for all arguments; a tuple of axes, or of trees of axes that are prefixes of the arguments, one
        for each argument by position; or a dictionary from names of arguments to these, in which the names of `*args`
        and `**kwargs` represent all in them. Default, also for arguments that a tuple or dictionary leaves out: 0 for
        arrays, None for other leaves.
      out_axes: The axis in the result, or a tree of axes that is a prefix of the result. Default: 0 for arrays.
      axis_name: The name of the axis, for `jax.lax.psum` and similar functions. Default: None.
      axis_size: The length of the axis, if no argument has it. Default: None.
      spmd_axis_name: Same as in `jax.vmap`. Default: None.

    Returns:
      A function of the same arguments, by position or by name. Leaves of the result that are not arrays are unchanged.

    Raises:
      TypeError: `fun` is not callable, or `axis_size` is not a number. When called: an option has an axis for a leaf
        that is not an array; the message has the path.
      ValueError: When called: axes do not fit the arguments or the result, or the arguments differ in the size of the
        axis; the message has the path.

    See Also:
      The guide "Transformations of any tree".
    """
    if axis_size is not None and not isinstance(axis_size, Integral):
        raise TypeError(f"`axis_size`: found {axis_size!r}, expected a Python number, as in axis_size=3")
    options = ("axis_name", axis_name), ("axis_size", axis_size), ("spmd_axis_name", spmd_axis_name)
    return wrapped(_Vmap, (in_axes, out_axes, options), fun)
