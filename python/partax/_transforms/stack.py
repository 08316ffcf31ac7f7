"""Trees that are equal but for their arrays, as one tree."""

from collections.abc import Iterable
from typing import Any, TypeVar

import jax.numpy as jnp

from partax import _core
from partax._transforms.carry_types import array_type
from partax._transforms.loops import check_leading_axis
from partax._transforms.tree_differences import Flat, first_difference

__all__ = ["stack", "unstack"]

_T = TypeVar("_T")

_NOTHING: Any = object()


def stack(layers: Iterable[_T]) -> _T:
    """Makes one tree of several that are equal but for the values of their arrays.

    Example:
      >>> layers = [{"weight": jnp.ones(2), "name": "linear"}, {"weight": jnp.zeros(2), "name": "linear"}]
      >>> partax.stack(layers)
      {'name': 'linear', 'weight': Array([[1., 1.],
             [0., 0.]], dtype=float32)}

    Args:
      layers: trees, such as the layers of a model.

    Returns:
      A tree like each of them, whose arrays are stacked along a new leading axis.

    Raises:
      ValueError: there are none; or two of them differ in a static part, or in the dtype or shape of an array; the
        message has the path and both: `layers[3].rate`.
    """
    first, *others = list(layers) or [_NOTHING]
    if first is _NOTHING:
        raise ValueError("`layers`: found none, expected one or more")
    leaves, spec = _core.flatten(first, "layers[0]")
    types = list(map(array_type, leaves))
    columns = [[leaf] for leaf in leaves]
    for i, layer in enumerate(others, 1):
        beside = spec.match(layer)
        if beside is None:
            beside, other = _core.flatten(layer, f"layers[{i}]")
            difference = first_difference(Flat(spec, types), Flat(other, list(map(array_type, beside))), f"layers[{i}]")
            if difference is not None:
                _fail(difference.path, difference.second, difference.first, difference.note)
        for k, (leaf, type) in enumerate(zip(beside, types, strict=True)):
            now = array_type(leaf)
            if (now.shape, now.dtype) != (type.shape, type.dtype):
                _fail(_core.flatten(layer, f"layers[{i}]")[1].dynamic_paths()[k], now.text, type.text)
            columns[k].append(leaf)
    return spec.rebuild(map(jnp.stack, columns))


def _fail(path: str, found: str, expected: str, note: str = "") -> None:
    raise ValueError(
        f"`{path}`: found {found}, expected {expected}, as `layers[0]` has{note}; layers of a stack may differ only in "
        "the values of arrays"
    )


def unstack(tree: _T) -> tuple[_T, ...]:
    """Makes several trees of one whose arrays have a leading axis of one length: what `stack` was given.

    Example:
      >>> partax.unstack({"weight": jnp.array([1.0, 2.0]), "name": "linear"})
      ({'name': 'linear', 'weight': Array(1., dtype=float32)}, {'name': 'linear', 'weight': Array(2., dtype=float32)})

    Args:
      tree: any tree with an array.

    Returns:
      A tree for each entry of the leading axis; what is not an array is the same in each.

    Raises:
      ValueError: the arrays have no leading axis of one length, or there is no array.
    """
    leaves, spec = _core.flatten(tree, "tree")
    if not leaves:
        raise ValueError("`tree`: found no array, expected one or more with a leading axis")
    check_leading_axis(leaves, spec)
    return tuple(map(spec.rebuild, zip(*map(jnp.unstack, leaves), strict=True)))
