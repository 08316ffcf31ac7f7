"""Derivatives along tangents, and of cotangents: filter_jvp and filter_vjp."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from partax._pytree.filters import FilterSpec, is_inexact_array, is_inexact_array_like
from partax._pytree.methods import close_methods
from partax._transforms.objects import Objects
from partax._transforms.on_arrays import (
    Rest,
    differentiated,
    filled_tangents,
    misfit,
    or_zero,
    split,
    structs_of,
    tangent_leaves,
    tree_of,
    value_and_aux,
    value_text,
)
from partax._transforms.wrapper import check_callable, names_of_arguments

_R = TypeVar("_R")


def filter_jvp(fn: Callable[..., _R], primals: Sequence[Any], tangents: Sequence[Any], **kwargs: Any) -> tuple[_R, _R]:
    """The result of a function and its derivative along tangents: `jax.jvp` for any trees.

    Example:
      >>> scale = lambda model, x: model["weight"] * x
      >>> model = {"weight": jnp.array([1.0, 2.0]), "name": "linear"}
      >>> partax.filter_jvp(scale, (model, 3.0), ({"weight": jnp.ones(2), "name": None}, None))
      (Array([3., 6.], dtype=float32), Array([3., 3.], dtype=float32))

    Args:
      fn: a function of any trees, with any result.
      primals: its arguments by position.
      tangents: for each argument a tree like it, with None for what has no tangent: for a leaf that is not a floating
        or complex array or number, for one that is to stay, or for a whole part of the tree.
      **kwargs: its arguments by name, which have no tangent.

    Returns:
      `(result, tangent)`. The tangent is a tree like the result, with None for what does not depend on a primal that
      has a tangent; with zeros, if a node of yours refuses None.

    Raises:
      ValueError: `tangents` are not like `primals`; the message has the path.
      TypeError: `fn` is not callable, or a tangent has another dtype than its primal, or its primal cannot have one.
    """
    check_callable(fn, "filter_jvp")
    for values in (primals, tangents):
        if not isinstance(values, (tuple, list)):
            raise TypeError(f"filter_jvp: found a `{type(values).__name__}`, expected tuples of primals and tangents")
    if len(primals) != len(tangents):
        raise ValueError(f"filter_jvp: found {len(tangents)} tangents and {len(primals)} primals, expected as many")
    objects = Objects.of_call("filter_jvp", fn, primals, kwargs)
    leaves, structure = jax.tree.flatten(list(primals))
    directions: list[Any] = []
    for name, primal, tangent in zip(names_of_arguments(fn, len(primals)), primals, tangents, strict=True):
        directions += tangent_leaves(tangent, primal, name, "tangent", _check)
    places = [i for i, tangent in enumerate(directions) if tangent is not None and not _is_zero(tangent)]

    def on_arrays(*values: Any) -> Any:
        arguments = list(leaves)
        for i, value in zip(places, values, strict=True):
            arguments[i] = value
        positional = jax.tree.unflatten(structure, arguments)
        result, changes = objects.return_changes(fn)(*positional, **objects.copies(kwargs))
        out, out_structure = jax.tree.flatten(result)
        depends = _with_tangent(values, out)
        own = [leaf for leaf, depend in zip(out, depends, strict=True) if depend]
        constants = [None if depend else leaf for leaf, depend in zip(out, depends, strict=True)]
        return own, (split((constants, changes)), Rest((depends, out_structure)))

    values: Sequence[Any] = []
    slopes: Sequence[Any] = []
    if places:
        values, slopes, (constants, rest) = jax.jvp(
            on_arrays, [leaves[i] for i in places], [directions[i] for i in places], has_aux=True
        )
    else:
        _, (constants, rest) = on_arrays()
    depends, out_structure = rest.value
    own, along = iter(values), iter(slopes)
    constants = objects.apply_changes(constants)
    out = [next(own) if depend else leaf for depend, leaf in zip(depends, constants, strict=True)]
    tangent = [next(along) if depend else None for depend in depends]
    return jax.tree.unflatten(out_structure, out), tree_of(out_structure, tangent, list(map(or_zero, tangent, out)))


def _is_zero(tangent: Any) -> bool:
    """Whether it is what jax has for the tangent of an integer."""
    return jnp.result_type(tangent) == jax.dtypes.float0


def _check(path: str, primal: Any, tangent: Any) -> None:
    zero = _is_zero(tangent)
    if not zero and not (is_inexact_array_like(primal) or hasattr(primal, "__jax_array__")):
        raise TypeError(f"`{path}`: found a tangent for {value_text(primal)}, which can have none; expected None")
    if jnp.shape(primal) != jnp.shape(tangent):
        raise ValueError(misfit(path, primal, tangent))
    if not zero and jnp.result_type(primal) != jnp.result_type(tangent):
        raise TypeError(misfit(path, primal, tangent))


def _with_tangent(inputs: Sequence[Any], leaves: Sequence[Any]) -> list[bool]:
    """Which leaves of a result have a tangent with respect to these inputs, as the rule of a custom derivative of
    both reports it.
    """
    has_tangent = [False] * len(leaves)
    if not inputs:
        return has_tangent
    at = [i for i, leaf in enumerate(leaves) if is_inexact_array_like(leaf)]
    marks: list[list[bool]] = []

    @jax.custom_jvp
    def ask(*values: Any) -> Any:
        return values

    def rule(values: Any, tangents: Any) -> Any:
        marks.append([not isinstance(tangent, SymbolicZero) for tangent in tangents])
        return values, values  # not used by anyone

    ask.defjvp(rule, symbolic_zeros=True)
    ask(*inputs, *(leaves[i] for i in at))
    for i, has in zip(at, marks[0][len(inputs) :], strict=True):
        has_tangent[i] = has
    return has_tangent


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
      wrt: a filter, same as in `partition`, of the tuple of arguments: of the leaves that it matches, the
        inexact arrays are differentiated. None: all inexact arrays.

    Returns:
      `(result, pull)`, or `(result, pull, aux)`. `pull` takes a tree like the result, with arrays for its inexact
      arrays and None for all else; None for an array means zeros. It returns a tuple of trees like the arguments,
      with None for what is not differentiated. It is a pytree of the arrays that it needs.

    Raises:
      TypeError: `fun` is not callable, or did not return a pair though `has_aux` says so.
      ValueError: `wrt` is not a filter. When `pull` is called: the cotangent is not like the result; the message has
        the path.
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
    return close_methods(pull(filled_tangents(cotangents, structs.value, "the result", "cotangent")))
