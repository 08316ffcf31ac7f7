"""One program for many values along an axis: filter_vmap."""

import functools
from collections.abc import Callable, Hashable
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from partax._pytree.filters import is_array, is_array_like
from partax._pytree.methods import open_methods
from partax._pytree.partition import is_none
from partax._transforms.arguments import Arguments
from partax._transforms.split import Split, spread
from partax._transforms.tangents import value_text
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

        def axis_of(path: str, leaf: Any, entry: Any) -> int | None:
            return _axis_of(leaf, entry, np.ndim(leaf) if is_array(leaf) else 0, path, "in_axes")

        splits, axes = arguments.split(axis_of)
        run = arguments.on_splits(self._name, functools.partial(_split_by_axis, out_axes=out_axes))
        if any(split.leaves for split in splits) or dict(options)["axis_size"] is not None:
            stacked, rest = jax.vmap(run, in_axes=axes, out_axes=(0, None), **dict(options))(*splits)
        else:
            stacked, rest = run(*splits)
            if stacked:
                raise ValueError(
                    f"{self.__name__}() under filter_vmap has no argument with an axis, so the size of its result is "
                    "not known; give `axis_size`, or out_axes=None"
                )
        moved = {path: jnp.moveaxis(leaf, 0, axis) for axis, of in stacked.items() for path, leaf in of.items()}
        return rest.update(moved).tree


def _split_by_axis(out: Any, out_axes: Any) -> tuple[dict[int, dict[str, Any]], Split]:
    """The leaves of a result by the axis that they get, and all others."""
    stacked: dict[int, dict[str, Any]] = {}
    rest = Split.of(out)
    for path, (leaf, entry) in spread(out_axes, open_methods(out), is_none, "out_axes", "the result").items():
        ndim = jnp.ndim(leaf) + 1 if is_array_like(leaf) else 0
        axis = _axis_of(leaf, entry, ndim, f"the result{path}", "out_axes")
        if axis is not None:
            stacked.setdefault(axis, {})[path] = leaf
            rest.leaves[path] = 0
    return stacked, rest


def _axis_of(leaf: Any, entry: Any, ndim: int, path: str, option: str) -> int | None:
    axis = entry(leaf) if callable(entry) else entry
    if axis is None:
        return None
    if not isinstance(axis, int) or isinstance(axis, bool):
        what = "an axis" if axis is entry else "a function that returned"
        raise ValueError(
            f"`{path}`: found {what} `{axis!r}` in {option}, expected None, an int, or a function (leaf) -> None or int"
        )
    if not -ndim <= axis < ndim:
        kind = ValueError if is_array_like(leaf) else TypeError
        raise kind(
            f"`{path}`: found {value_text(leaf)}, expected an array that can have the axis {axis} of {option}; give "
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
    return wrapped(_Vmap, _Vmap._name, (in_axes, out_axes, options), fun)
