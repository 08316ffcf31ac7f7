"""Layers that are equal except for their arrays: as one tree, and one after the other as a scan over it."""

import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from partax._transforms.loops import check_leading_axis, scan
from partax._transforms.objects import Objects
from partax._transforms.split import Split, first_difference

_T = TypeVar("_T")


def stack(layers: Iterable[_T]) -> _T:
    """Stack trees that are equal except for the values of their arrays.

    Example:
      >>> layers = [{"weight": jnp.ones(2), "name": "linear"}, {"weight": jnp.zeros(2), "name": "linear"}]
      >>> partax.tree.stack(layers)
      {'name': 'linear', 'weight': Array([[1., 1.],
             [0., 0.]], dtype=float32)}

    Args:
      layers: One or more trees, such as the layers of a model.

    Returns:
      A tree like each of them, whose arrays are stacked along a new leading axis.

    Raises:
      ValueError: There are none; or two of them differ in a static part, or in the dtype or shape of an array; the
        message has the path and both: `layers[3].rate`.

    See Also:
      The guide "Loops, branches and layers".
    """
    every = list(layers)
    if not every or isinstance(layers, dict):
        raise ValueError(f"`layers`: found {'a `dict`' if every else 'none'}, expected a list of one or more")
    first, *others = [Split.of(layer, root=f"layers[{i}]") for i, layer in enumerate(every)]
    for i, other in enumerate(others, 1):
        if difference := first_difference(first, other, f"layers[{i}]"):
            raise ValueError(
                f"`{difference.path}`: found {difference.second}, expected {difference.first}, as `layers[0]` has"
                f"{difference.note}; layers of a stack may differ only in the values of arrays"
            )
    columns = zip(first.leaves.values(), *(other.leaves.values() for other in others), strict=True)
    return first.replace(map(jnp.stack, columns)).tree


def unstack(tree: _T) -> tuple[_T, ...]:
    """Split a tree whose arrays have a leading axis of one length into one tree for each entry. The inverse of `stack`.

    Example:
      >>> partax.tree.unstack({"weight": jnp.array([1.0, 2.0]), "name": "linear"})
      ({'name': 'linear', 'weight': Array(1., dtype=float32)}, {'name': 'linear', 'weight': Array(2., dtype=float32)})

    Args:
      tree: Any tree with an array.

    Returns:
      A tree for each entry of the leading axis; the static part is the same in each.

    Raises:
      ValueError: The arrays have no leading axis of one length, or `tree` has none.

    See Also:
      The guide "Loops, branches and layers".
    """
    split = Split.of(tree)
    if not split.leaves:
        raise ValueError("`tree`: found no array, expected one or more with a leading axis")
    check_leading_axis(split, "tree")
    return tuple(split.replace(row).tree for row in zip(*map(jnp.unstack, split.leaves.values()), strict=True))


def scan_layers(
    layers: Any,
    x: Any,
    per_layer: Any = None,
    *,
    call: Callable[..., Any] = operator.call,
    has_aux: bool = False,
    remat: bool | Callable[..., Any] = False,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> Any:
    """Call one layer after the other, `x = layer(x)`, in a program that has one layer.

    Example:
      >>> layers = [{"weight": jnp.full(2, w), "activation": jnp.tanh} for w in (1.0, 2.0, 3.0)]
      >>> partax.scan_layers(layers, jnp.ones(2), call=lambda layer, x: x * layer["weight"])
      Array([6., 6.], dtype=float32)

    Args:
      layers: A list or tuple of layers that are equal except for their arrays; or the one tree that `stack` makes of
        them, which saves stacking in each call.
      x: The input of the first layer, any tree. It keeps its structure, dtypes and shapes, as a carry of `filter_scan`.
      per_layer: Any tree whose arrays have one entry for each layer, such as keys. Default: None.
      call: A function that calls a layer, `call(layer, x)`, or `call(layer, x, entries)` with its entries of
        `per_layer`. Default: `layer(x)` or `layer(x, entries)`.
      has_aux: Whether a layer returns `(x, aux)`. Default: False.
      remat: Whether to compute the intermediate values of a layer again for its gradient, instead of keeping them; or a
        policy of `jax.checkpoint_policies`, which selects the values to keep. Default: False.
      reverse: Whether to begin with the last layer. Default: False.
      unroll: The number of layers in one iteration of the loop. Same as in `jax.lax.scan`. Default: 1.

    Returns:
      The result of the last layer; with `has_aux` a pair of it and of each layer's `aux`: arrays stacked along a new
      leading axis, everything else once.

    Raises:
      ValueError: The layers differ, same as in `stack`; or arrays of `layers` and `per_layer` have no leading axis of
        one length.
      TypeError: A layer changes the structure, a static part, a dtype or a shape of `x`, by its path with both.

    See Also:
      The guide "Loops, branches and layers".
    """
    objects = Objects("scan_layers", [("layers", layers), ("x", x), ("per_layer", per_layer)])
    function = objects.refuse_changes(call, names=("layer", "x", "per_layer"))
    # A NamedTuple or a module is one layer, or a stack.
    count = len(layers) if type(layers) in (list, tuple) else None
    stacked = layers if count is None else stack(layers)
    split = Split.of(stacked, root="layers")
    check_leading_axis(split, "layers", count)
    if split.leaves:
        count = next(iter(split.leaves.values())).shape[0]
    elif count is None:
        raise ValueError("`layers`: found no array, expected one or more with a leading axis, or a list of layers")
    check_leading_axis(Split.of(per_layer, root="per_layer"), "per_layer", count, "there are layers")

    def step(x: Any, entry: Any) -> Any:
        layer, *rest = entry
        out = function(layer, x, *rest)
        return out if has_aux else (out, None)

    def around(body: Callable[..., Any]) -> Callable[..., Any]:
        policy = None if remat is True else remat or None
        return jax.checkpoint(body, prevent_cse=False, policy=policy) if remat else body

    entries = (stacked,) if per_layer is None else (stacked, per_layer)
    out = scan(
        step, x, entries, length=count, reverse=reverse, unroll=unroll, root="x", step="the layer", around=around
    )
    return out if has_aux else out[0]
