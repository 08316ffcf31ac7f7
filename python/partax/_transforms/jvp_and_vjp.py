"""Derivatives along tangents, and of cotangents: filter_jvp and filter_vjp."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
from jax.custom_derivatives import SymbolicZero

from partax._pytree.filters import FilterSpec, is_array, is_inexact_array, is_inexact_array_like
from partax._pytree.methods import close_methods
from partax._transforms.objects import Objects
from partax._transforms.on_arrays import (
    Rest,
    differentiated,
    fill_tangents,
    joined,
    or_zero,
    split,
    structs_of,
    tangent_leaves,
    tree_of,
    value_and_aux,
)
from partax._transforms.wrapper import check_callable, names_of_arguments

_R = TypeVar("_R")


def filter_jvp(fn: Callable[..., _R], primals: Sequence[Any], tangents: Sequence[Any], **kwargs: Any) -> tuple[_R, _R]:
    """Compute the result of a function and its derivative along tangents. Same as `jax.jvp`, for any pytree.

    Example:
      >>> scale = lambda model, x: model["weight"] * x
      >>> model = {"weight": jnp.array([1.0, 2.0]), "name": "linear"}
      >>> partax.filter_jvp(scale, (model, 3.0), ({"weight": jnp.ones(2), "name": None}, None))
      (Array([3., 6.], dtype=float32), Array([3., 3.], dtype=float32))

    Args:
      fn: A function of any trees, with any result.
      primals: A tuple or list of its arguments by position.
      tangents: For each argument a tree like it, with None for a leaf without a tangent or a whole part of the tree.
        Only floating and complex arrays and numbers can have a tangent.
      **kwargs: Its arguments by name, which have no tangent.

    Returns:
      `(result, tangent)`. The tangent is a tree like the result, with None for a leaf that does not depend on a primal
      with a tangent; with zeros, if one of your nodes refuses None.

    Raises:
      TypeError: `fn` is not callable, `primals` or `tangents` is not a tuple or list, a tangent has another dtype than
        its primal, or its primal cannot have one.
      ValueError: `tangents` are not like `primals`; the message has the path.

    See Also:
      The guide "Transformations of any tree".
    """
    check_callable(fn, "filter_jvp")
    for values in (primals, tangents):
        if not isinstance(values, (tuple, list)):
            raise TypeError(f"filter_jvp: found a `{type(values).__name__}`, expected tuples of primals and tangents")
    if len(primals) != len(tangents):
        raise ValueError(f"filter_jvp: found {len(tangents)} tangents and {len(primals)} primals, expected as many")
    objects = Objects.of_call("filter_jvp", fn, primals, kwargs)
    directions: list[Any] = []
    for name, primal, tangent in zip(names_of_arguments(fn, len(primals)), primals, tangents, strict=True):
        directions += tangent_leaves(tangent, primal, name, "tangent")
    arrays, rest = split(list(primals), [tangent is not None for tangent in directions])

    def on_arrays(arrays: Any) -> Any:
        result, changes = objects.return_changes(fn)(*joined((arrays, rest)), **objects.copies(kwargs))
        depends = _with_tangent(jax.tree.leaves(arrays), jax.tree.leaves(result))
        own, constants, rest_of_result = split(result, depends, is_array)
        return own, (constants, rest_of_result, split((None, changes)))

    values, slopes, (constants, rest_of_result, changes) = jax.jvp(on_arrays, [arrays], [directions], has_aux=True)
    objects.apply_changes(changes)
    result = joined((values, constants, rest_of_result))
    zeros = list(map(or_zero, slopes, jax.tree.leaves(result)))
    return result, tree_of(jax.tree.structure(result), slopes, zeros)


def _with_tangent(inputs: Sequence[Any], leaves: Sequence[Any]) -> list[bool]:
    """Return which leaves of a result have a tangent with respect to these inputs. The rule of a custom derivative of
    both reports it.
    """
    marks: list[bool] = []

    @jax.custom_jvp
    def ask(*values: Any) -> Any:
        return values

    def rule(values: Any, tangents: Any) -> Any:
        marks.extend(not isinstance(tangent, SymbolicZero) for tangent in tangents)
        return values, values  # not used by anyone

    ask.defjvp(rule, symbolic_zeros=True)
    ask(*inputs, *(leaf for leaf in leaves if is_inexact_array_like(leaf)))
    of_leaves = iter(marks[len(inputs) :])
    return [is_inexact_array_like(leaf) and next(of_leaves, False) for leaf in leaves]


def filter_vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, wrt: FilterSpec = None) -> Any:
    """Compute the result of a function and return its pullback of cotangents. Same as `jax.vjp`, for any pytree.

    Example:
      >>> scale = lambda model, x: model["weight"] * x
      >>> model = {"weight": jnp.array([1.0, 2.0]), "name": "linear"}
      >>> result, pull = partax.filter_vjp(scale, model, jnp.float32(3))
      >>> pull(jnp.ones(2))
      ({'name': None, 'weight': Array([3., 3.], dtype=float32)}, Array(3., dtype=float32))

    Args:
      fun: A function of any trees, with any result.
      *primals: Its arguments.
      has_aux: Whether `fun` returns `(result, aux)`; `aux` may be anything. Default: False.
      wrt: A filter, same as in `partition`, of the tuple of arguments; the inexact arrays that it matches are
        differentiated. Default: None, for all inexact arrays.

    Returns:
      `(result, pull)`, or `(result, pull, aux)`. `pull` is a pytree of the arrays that it needs. Its argument is a tree
      like the result, with arrays for its inexact arrays and None for other leaves; None for an array means zeros. It
      returns a tuple of trees like the arguments, with None for a leaf that is not differentiated.

    Raises:
      TypeError: `fun` is not callable, or does not return a pair with `has_aux`.
      ValueError: `wrt` is not a filter. When `pull` is called: the cotangent is not like the result; the message has
        the path.

    See Also:
      The guide "Transformations of any tree".
    """
    check_callable(fun, "filter_vjp")
    objects = Objects.of_call("filter_vjp", fun, primals, {})
    differentiable, whole = differentiated(primals, wrt)

    def on_arrays(*part: Any) -> Any:
        out, changes = objects.return_changes(fun)(*whole(part))
        value, aux = value_and_aux(out, has_aux, getattr(fun, "__name__", "the function"))
        inexact = jax.tree.map(lambda leaf: leaf if is_inexact_array(leaf) else None, value)
        return inexact, split(((value, aux), changes))

    arrays, pull, rest = jax.vjp(on_arrays, *differentiable, has_aux=True)
    value, aux = objects.apply_changes(rest)
    pull_back = jax.tree_util.Partial(_pull, pull, Rest(structs_of(arrays)))
    return (value, pull_back, aux) if has_aux else (value, pull_back)


def _pull(pull: Any, structs: Any, cotangents: Any) -> Any:
    return close_methods(pull(fill_tangents(cotangents, structs.value, "the result", "cotangent")))
