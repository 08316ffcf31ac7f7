"""Loops that carry any tree, and layers that are equal except for their arrays, as a loop over them."""

import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from partax._transforms.carry import Carry, in_place_of, run_with_promoted_carry
from partax._transforms.objects import Objects
from partax._transforms.programs import filter_checkpoint
from partax._transforms.split import Split, first_difference, leaf_text

_Carry = TypeVar("_Carry")
_X = TypeVar("_X")
_Y = TypeVar("_Y")
_T = TypeVar("_T")


def filter_scan(
    f: Callable[[_Carry, _X], tuple[_Carry, _Y]],
    init: _Carry,
    xs: _X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[_Carry, _Y]:
    """Loop over the leading axis of arrays. Same as `jax.lax.scan`, for any pytree: arrays are carried, scanned and
    stacked, everything else is static.

    Example:
      >>> step = lambda carry, x: ({**carry, "total": carry["total"] + x}, 2 * x)
      >>> partax.filter_scan(step, {"total": 0.0, "name": "sum"}, jnp.arange(4.0))
      ({'name': 'sum', 'total': Array(6., dtype=float32)}, Array([0., 2., 4., 6.], dtype=float32))

    Only the values of arrays may change, but Python numbers that a step changes become arrays, and weak types become
    the types that a step returns; then `f` is traced again. Outside of jit, each call is compiled again.

    Args:
      f: A function `(carry, x) -> (carry, y)`. It is differentiated through what it captures or, as a module, holds.
      init: The carry of the first step.
      xs: A tree: each step gets one entry of each array's leading axis, and the static part unchanged. Default: None.
      length: The number of steps; needed if `xs` has no array. Default: the length of the leading axis.
      reverse, unroll: Same as in `jax.lax.scan`. Default: False, 1.

    Returns:
      The last carry, and the `y`s of the steps: arrays stacked along a new leading axis, everything else once.

    Raises:
      TypeError, ValueError: `f` changes a static part, dtype or shape of the carry, or `xs` has no leading axis.

    See Also: The guide "Loops, branches and layers".
    """
    objects = Objects("filter_scan", [("carry", init), ("xs", xs)])
    return scan(objects.refuse_changes(f), init, xs, length=length, reverse=reverse, unroll=unroll)


def scan(
    f: Callable[[Any, Any], Any],
    init: Any,
    xs: Any,
    *,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    **words: str,
) -> tuple[Any, Any]:
    """`filter_scan` without its check of objects; `words` as in `run_with_promoted_carry`."""
    entries = _split_by_axis(xs, "xs", length, instead=", or the number of steps as `length`")

    def run(carry: Carry) -> tuple[Split, Split]:
        def body(before: Split, x: Split) -> tuple[Split, Split]:
            out: Any = f(before.tree, x.tree)
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise TypeError(f"found a `{type(out).__name__}` as the result of a step, expected (carry, y)")
            return carry.after(before, out[0]), Split.of(out[1], root="ys")

        return jax.lax.scan(in_place_of(f, body), carry.split, entries, length, reverse, unroll)

    last, stacked = run_with_promoted_carry(init, run, **words)
    return last.tree, stacked.tree


def filter_while_loop(
    cond_fun: Callable[[_Carry], Any], body_fun: Callable[[_Carry], _Carry], init_val: _Carry
) -> _Carry:
    """Loop while a condition is true. Same as `jax.lax.while_loop`, for any pytree: arrays are carried.

    Example:
      >>> double = lambda carry: {**carry, "x": carry["x"] * 2}
      >>> partax.filter_while_loop(lambda carry: carry["x"] < 100, double, {"x": jnp.int32(3), "name": "a"})
      {'name': 'a', 'x': Array(192, dtype=int32)}

    Args:
      cond_fun, body_fun: Functions `carry -> bool`, which is False at the end, and `carry -> carry`.
      init_val: The first carry, which changes as in `filter_scan`.

    Returns:
      The last carry.

    Raises: Same as in `filter_scan`.
    See Also: The guide "Loops, branches and layers".
    """
    objects = Objects("filter_while_loop", [("carry", init_val)])
    condition, step = objects.refuse_changes(cond_fun), objects.refuse_changes(body_fun)

    def run(carry: Carry) -> Split:
        goes_on = in_place_of(cond_fun, lambda split: condition(split.tree))
        body = in_place_of(body_fun, lambda split: carry.after(split, step(split.tree)))
        return jax.lax.while_loop(goes_on, body, carry.split)

    return run_with_promoted_carry(init_val, run).tree


def filter_fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, _Carry], _Carry],
    init_val: _Carry,
    *,
    unroll: int | bool | None = None,
) -> _Carry:
    """Loop over a range of indices. Same as `jax.lax.fori_loop`, for any pytree: arrays are carried.

    Example:
      >>> add = lambda i, carry: {**carry, "x": carry["x"] + i}
      >>> partax.filter_fori_loop(0, 5, add, {"x": jnp.int32(0), "name": "a"})
      {'name': 'a', 'x': Array(10, dtype=int32)}

    Args:
      lower, upper: The range. If both are Python numbers, the loop can be differentiated in reverse.
      body_fun: A function `(index, carry) -> carry`.
      init_val: The first carry, which changes as in `filter_scan`.
      unroll: Same as in `jax.lax.fori_loop`. Default: None.

    Returns:
      The last carry.

    Raises: Same as in `filter_scan`.
    See Also: The guide "Loops, branches and layers".
    """
    step = Objects("filter_fori_loop", [("index", lower), ("carry", init_val)]).refuse_changes(body_fun)

    def run(carry: Carry) -> Split:
        body = in_place_of(body_fun, lambda index, split: carry.after(split, step(index, split.tree)))
        return jax.lax.fori_loop(lower, upper, body, carry.split, unroll=unroll)

    return run_with_promoted_carry(init_val, run).tree


def filter_map(f: Callable[[_X], _Y], xs: _X, *, batch_size: int | None = None) -> _Y:
    """Call a function for each entry of the leading axis of arrays. Same as `jax.lax.map`, for any pytree.

    Example:
      >>> norm = lambda tree: {"norm": jnp.sum(tree["x"] ** 2), "name": tree["name"]}
      >>> partax.filter_map(norm, {"x": jnp.array([[3.0, 4.0], [0.0, 2.0]]), "name": "a"})
      {'name': 'a', 'norm': Array([25.,  4.], dtype=float32)}

    Args:
      f: A function of a tree like `xs`, whose arrays are without their leading axis.
      xs: Any tree; `f` gets its static part unchanged.
      batch_size: The number of entries that are computed at once. Same as in `jax.lax.map`. Default: None, for one.

    Returns:
      The results: arrays stacked along a new leading axis, everything else once.

    Raises:
      ValueError: The arrays of `xs` have no leading axis of one length.

    See Also: The guide "Loops, branches and layers".
    """
    function = Objects("filter_map", [("xs", xs)]).refuse_changes(f)
    body = in_place_of(f, lambda x: Split.of(function(x.tree), root="result"))
    return jax.lax.map(body, _split_by_axis(xs, "xs"), batch_size=batch_size).tree


def _split_by_axis(
    tree: Any, root: str, length: int | None = None, whose: str = "`length` says", instead: str = ""
) -> Split:
    """Split a tree whose arrays have a leading axis of one length; `instead` says what else could give the length."""
    split = Split.of(tree, root=root)
    if not split.leaves and length is None:
        raise ValueError(f"`{root}`: found no array, expected one or more with a leading axis{instead}")
    first = next(iter(split.leaves), "")
    for path, leaf in split.leaves.items():
        message_start = f"`{root}{path}`: found {leaf_text(leaf)}, expected "
        if not np.ndim(leaf):
            raise ValueError(f"{message_start}an array with a leading axis")
        if length is None:
            length, whose = leaf.shape[0], f"`{root}{first}` has"
        if leaf.shape[0] != length:
            raise ValueError(f"{message_start}a leading axis of length {length}, as {whose}")
    return split


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
      ValueError: There are none, or two differ in more than the values of arrays; the message has the path and both.

    See Also: The guide "Loops, branches and layers".
    """
    every = list(layers)
    if not every or isinstance(layers, dict):
        raise ValueError(f"`layers`: found {'a `dict`' if every else 'none'}, expected a list of one or more")
    first, *rest = [Split.of(layer, root=f"layers[{i}]") for i, layer in enumerate(every)]
    for i, other in enumerate(rest, 1):
        if difference := first_difference(first, other, f"layers[{i}]"):
            raise ValueError(
                f"`{difference.path}`: found {difference.second}, expected {difference.first}, as `layers[0]` has"
                f"{difference.note}; layers of a stack may differ only in the values of arrays"
            )
    columns = zip(first.leaves.values(), *(other.leaves.values() for other in rest), strict=True)
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

    See Also: The guide "Loops, branches and layers".
    """
    split = _split_by_axis(tree, "tree")
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
      layers: A list or tuple of layers, or the one tree that `stack` makes of them, which saves stacking in each call.
      x: The input of the first layer, any tree. It keeps its structure, dtypes and shapes, as a carry of `filter_scan`.
      per_layer: Any tree whose arrays have one entry for each layer, such as keys. Default: None.
      call: A function `call(layer, x)`, or `call(layer, x, entries)` with `per_layer`. Default: to call the layer.
      has_aux: Whether a layer returns `(x, aux)`. Default: False.
      remat: Whether to run each layer under `filter_checkpoint`; or the policy for that. Default: False.
      reverse, unroll: Same as in `jax.lax.scan`. Default: False, 1.

    Returns:
      The result of the last layer; with `has_aux` a pair of it and of each layer's `aux`, as the `y`s of `filter_scan`.

    Raises: Same as in `stack` and `filter_scan`.
    See Also: The guide "Loops, branches and layers".
    """
    objects = Objects("scan_layers", [("layers", layers), ("x", x), ("per_layer", per_layer)])
    function: Callable[..., Any] = objects.refuse_changes(call)
    if remat:
        function = filter_checkpoint(function, prevent_cse=False, policy=None if remat is True else remat)
    # A NamedTuple or a module is one layer, or a stack.
    count = len(layers) if type(layers) in (list, tuple) else None
    stacked = layers if count is None else stack(layers)
    split = _split_by_axis(stacked, "layers", count, instead=", or a list of layers")
    if split.leaves:
        count = next(iter(split.leaves.values())).shape[0]
    _split_by_axis(per_layer, "per_layer", count, "there are layers")

    def step(x: Any, entry: Any) -> Any:
        layer, *rest = entry
        out = function(layer, x, *rest)
        return out if has_aux else (out, None)

    entries = (stacked,) if per_layer is None else (stacked, per_layer)
    out = scan(step, x, entries, length=count, reverse=reverse, unroll=unroll, root="x", step="the layer")
    return out if has_aux else out[0]
