"""filter_vjp and filter_linearize: a function at a point, and its derivative there as a linear function."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar, TypeVarTuple, overload

import jax

from partax._pytree.filters import FilterSpec, is_inexact_array
from partax._transforms.arguments import names_of_arguments
from partax._transforms.on_arrays import Rest, joined, split
from partax._transforms.tangents import differentiated, filled_tangents, structs_of, value_and_aux
from partax._transforms.wrapper import check_callable

_A = TypeVar("_A")
_R = TypeVar("_R")
_Ts = TypeVarTuple("_Ts")


@overload
def filter_vjp(
    fun: Callable[[*_Ts], _R], *primals: *_Ts, has_aux: Literal[False] = False, wrt: FilterSpec = None
) -> tuple[_R, Callable[[_R], tuple[*_Ts]]]: ...
@overload
def filter_vjp(
    fun: Callable[[*_Ts], tuple[_R, _A]], *primals: *_Ts, has_aux: Literal[True], wrt: FilterSpec = None
) -> tuple[_R, Callable[[_R], tuple[*_Ts]], _A]: ...
def filter_vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, wrt: FilterSpec = None) -> Any:
    """The result of a function, and the function that pulls cotangents of it back: `jax.vjp` for any trees.

    Example:
      >>> scale = lambda model, x: model["weight"] * x
      >>> model = {"weight": jnp.array([1.0, 2.0]), "name": "linear"}
      >>> result, pull = partax.filter_vjp(scale, model, jnp.float32(3))
      >>> pull(jnp.ones(2))
      ({'name': None, 'weight': Array([3., 3.], dtype=float32)}, Array(3., dtype=float32))

    Args:
      fun: a function of any trees, with any result.
      *primals: its arguments.
      has_aux: whether `fun` returns `(result, aux)`; `aux` may be anything.
      wrt: a filter, as of `partition`, of what to differentiate in the tuple of arguments: of what it takes, the
        inexact arrays. None: all inexact arrays.

    Returns:
      `(result, pull)`, or `(result, pull, aux)`. `pull` takes a tree like the result, with arrays for its inexact
      arrays and None for all else; None for an array stands for zeros. It returns a tuple of trees like the arguments,
      with None for what is not differentiated. It is a pytree of the arrays that it needs.

    Raises:
      TypeError: `fun` is not callable, or did not return a pair though `has_aux` says so.
      ValueError: `wrt` is no filter. When `pull` is called: the cotangent is not like the result; the message has the
        path.
    """
    check_callable(fun, "filter_vjp")
    on_arrays, differentiable = _on_arrays(fun, primals, has_aux, wrt)
    arrays, pull, rest = jax.vjp(on_arrays, *differentiable, has_aux=True)
    bound = jax.tree_util.Partial(_pull, pull, Rest(structs_of(arrays)))
    return _with_rest(bound, rest, has_aux)


@overload
def filter_linearize(
    fun: Callable[[*_Ts], _R], *primals: *_Ts, has_aux: Literal[False] = False, wrt: FilterSpec = None
) -> tuple[_R, Callable[[*_Ts], _R]]: ...
@overload
def filter_linearize(
    fun: Callable[[*_Ts], tuple[_R, _A]], *primals: *_Ts, has_aux: Literal[True], wrt: FilterSpec = None
) -> tuple[_R, Callable[[*_Ts], _R], _A]: ...
def filter_linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, wrt: FilterSpec = None) -> Any:
    """The result of a function, and its derivative there as a linear function: `jax.linearize` for any trees.

    Example:
      >>> square = lambda tree: {"y": tree["x"] ** 2, "name": tree["name"]}
      >>> result, push = partax.filter_linearize(square, {"x": jnp.array([1.0, 3.0]), "name": "a"})
      >>> push({"x": jnp.ones(2), "name": None})
      {'name': None, 'y': Array([2., 6.], dtype=float32)}

    Args:
      fun, *primals, has_aux, wrt: as for `filter_vjp`.

    Returns:
      `(result, push)`, or `(result, push, aux)`. `push` takes for each argument a tree like it, with arrays for what is
      differentiated and None for all else; None for an array or a whole part stands for zeros. It returns a tree like
      the result, with None for all but inexact arrays.

    Raises:
      TypeError: as for `filter_vjp`.
      ValueError: likewise. When `push` is called: a tangent is not like its argument; the message has the path.
    """
    check_callable(fun, "filter_linearize")
    on_arrays, differentiable = _on_arrays(fun, primals, has_aux, wrt)
    _, push, rest = jax.linearize(on_arrays, *differentiable, has_aux=True)
    names = names_of_arguments(fun, len(primals))
    bound = jax.tree_util.Partial(_push, push, Rest((names, structs_of(differentiable))))
    return _with_rest(bound, rest, has_aux)


def _on_arrays(
    fun: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool, wrt: FilterSpec
) -> tuple[Callable[..., Any], Any]:
    """The function on what is differentiated, and these values; beside the inexact arrays it returns the rest."""
    differentiable, whole = differentiated(primals, wrt)

    def on_arrays(*part: Any) -> Any:
        out = fun(*whole(part))
        value, aux = value_and_aux(out, has_aux, getattr(fun, "__name__", "the function"))
        return jax.tree.map(lambda leaf: leaf if is_inexact_array(leaf) else None, value), split((value, aux))

    return on_arrays, differentiable


def _with_rest(bound: Any, rest: Any, has_aux: bool) -> Any:
    value, aux = joined(rest)
    return (value, bound, aux) if has_aux else (value, bound)


def _pull(pull: Any, structs: Any, cotangents: Any) -> Any:
    return pull(filled_tangents(cotangents, structs.value, "the result", "cotangent"))


def _push(push: Any, static: Any, *tangents: Any) -> Any:
    names, structs = static.value
    if len(tangents) != len(names):
        raise ValueError(f"found {len(tangents)} tangents, expected one for each argument ({', '.join(names)})")
    given = zip(tangents, structs, names, strict=True)
    return push(*(filled_tangents(tangent, struct, name, "tangent") for tangent, struct, name in given))
