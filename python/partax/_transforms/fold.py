"""One layer after the other, as a scan over their stack."""

from collections.abc import Callable
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

import jax

from partax import _core
from partax._transforms.loops import check_leading_axis, scan
from partax._transforms.stack import stack

__all__ = ["fold"]

_X = TypeVar("_X")
_Aux = TypeVar("_Aux")


def _call(layer: Callable[..., Any], *rest: Any) -> Any:
    return layer(*rest)


class _Options(TypedDict, total=False):
    remat: bool | Callable[..., Any]
    reverse: bool
    unroll: int | bool


@overload
def fold(
    layers: Any,
    x: _X,
    per_layer: Any = None,
    *,
    call: Callable[..., _X] = ...,
    has_aux: Literal[False] = False,
    **options: Unpack[_Options],
) -> _X: ...
@overload
def fold(
    layers: Any,
    x: _X,
    per_layer: Any = None,
    *,
    call: Callable[..., tuple[_X, _Aux]],
    has_aux: Literal[True],
    **options: Unpack[_Options],
) -> tuple[_X, _Aux]: ...
@overload
def fold(
    layers: Any, x: _X, per_layer: Any = None, *, has_aux: Literal[True], **options: Unpack[_Options]
) -> tuple[_X, Any]: ...
def fold(
    layers: Any,
    x: Any,
    per_layer: Any = None,
    *,
    call: Callable[..., Any] = _call,
    has_aux: bool = False,
    remat: bool | Callable[..., Any] = False,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> Any:
    """Calls one layer after the other, `x = layer(x)`, in a program that has one layer.

    Example:
      >>> layers = [{"weight": jnp.full(2, w), "activation": jnp.tanh} for w in (1.0, 2.0, 3.0)]
      >>> partax.fold(layers, jnp.ones(2), call=lambda layer, x: x * layer["weight"])
      Array([6., 6.], dtype=float32)

    Args:
      layers: a list or tuple of layers that are equal but for their arrays; or one tree of them, as `stack` makes it,
        which saves stacking them in each call.
      x: any tree: what the first layer is given. Its structure, dtypes and shapes stay, as those of a carry in
        `filter_scan`.
      per_layer: any tree whose arrays have one entry for each layer, such as keys; if given, a layer is called with its
        entries after `x`.
      call: how a layer is called, `call(layer, x)` or `call(layer, x, entries)`; `layer(x)` or `layer(x, entries)`, if
        not given.
      has_aux: whether a layer returns `(x, aux)`.
      remat: whether to compute a layer's intermediate values again for its gradient, instead of keeping them; or a
        policy of `jax.checkpoint_policies`, which says what is kept.
      reverse: whether to begin with the last layer.
      unroll: as of `jax.lax.scan`: how many layers the program has side by side.

    Returns:
      What the last layer returns; with `has_aux` a pair of it and of each layer's `aux`: arrays stacked along a new
      leading axis, everything else once.

    Raises:
      ValueError: the layers differ, as for `stack`; or arrays of `layers` and `per_layer` have no leading axis of one
        length.
      TypeError: a layer changes the structure, a static part, a dtype or a shape of `x`, by its path with both.
    """
    # A NamedTuple or a module is one layer, or a stack.
    count = len(layers) if type(layers) in (list, tuple) else None
    stacked = layers if count is None else stack(layers)
    leaves, spec = _core.flatten(stacked, "layers")
    check_leading_axis(leaves, spec, count)
    if leaves:
        count = leaves[0].shape[0]
    elif count is None:
        raise ValueError("`layers`: found no array, expected one or more with a leading axis, or a list of layers")
    check_leading_axis(*_core.flatten(per_layer, "per_layer"), count, "there are layers")

    def step(x: Any, entry: Any) -> Any:
        layer, *rest = entry
        out = call(layer, x, *rest)
        return out if has_aux else (out, None)

    def around(body: Callable[..., Any]) -> Callable[..., Any]:
        if not remat:
            return body
        return jax.checkpoint(body, prevent_cse=False, policy=None if remat is True else remat)

    entries = (stacked,) if per_layer is None else (stacked, per_layer)
    out = scan(
        step, x, entries, length=count, reverse=reverse, unroll=unroll, root="x", step="the layer", around=around
    )
    return out if has_aux else out[0]
