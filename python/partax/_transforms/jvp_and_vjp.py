"""Derivatives along tangents, and of cotangents: filter_jvp and filter_vjp."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
from jax.custom_derivatives import SymbolicZero

from partax._pytree.filters import FilterSpec, is_inexact_array, is_inexact_array_like
from partax._transforms.objects import Objects
from partax._transforms.split import Split
from partax._transforms.tangents import build_tangent, differentiated, tangents_by_path, value_and_aux, zeros_like
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
    tangent_leaves: dict[str, Any] = {}
    for i, name in enumerate(names_of_arguments(fn, len(primals))):
        leaves = tangents_by_path(tangents[i], primals[i], name, "tangent")
        tangent_leaves |= {f"[{i}]{path}": leaf for path, leaf in leaves.items()}
    split = Split.of(list(primals), True).only(tangent_leaves)

    def on_leaves(split: Split) -> Any:
        out, changes = objects.return_changes(fn)(*split.tree, **objects.copies(kwargs))
        result = Split.of(out)
        dependent = _dependent_leaves(split, result)
        return dependent, (result.update(dict.fromkeys(dependent, 0)), Split.of((None, changes)))

    values, slopes, (rest, changes) = jax.jvp(on_leaves, [split], [split.update(tangent_leaves)], has_aux=True)
    objects.apply_changes(changes)
    result = rest.update(values)
    return result.tree, build_tangent(result, slopes)


def _dependent_leaves(inputs: Split, result: Split) -> dict[str, Any]:
    """Return the leaves of a result that have a tangent with respect to inputs, which all have one. The rule of a
    custom derivative of them reports it.
    """
    leaves = {path: leaf for path, leaf in result.values.items() if is_inexact_array_like(leaf)}
    dependent: list[str] = []

    @jax.custom_jvp
    def ask(inputs: Any, leaves: dict[str, Any]) -> Any:
        return inputs, leaves

    def rule(values: Any, tangents: Any) -> Any:
        dependent.extend(path for path, tangent in tangents[1].items() if not isinstance(tangent, SymbolicZero))
        return values, values  # not used by anyone

    ask.defjvp(rule, symbolic_zeros=True)
    ask(list(inputs.leaves.values()), leaves)
    return {path: leaves[path] for path in dependent}


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

    def on_leaves(split: Split) -> Any:
        out, changes = objects.return_changes(fun)(*split.tree)
        value, aux = value_and_aux(out, has_aux, getattr(fun, "__name__", "the function"))
        return Split.of(value, is_inexact_array).leaves, Split.of(((value, aux), changes))

    arrays, pull, rest = jax.vjp(on_leaves, differentiated(primals, wrt), has_aux=True)
    value, aux = objects.apply_changes(rest)
    structs = Split.of(value, is_inexact_array).build(jax.eval_shape(lambda: arrays))
    pull_back = jax.tree_util.Partial(_pull, pull, Split.of(structs, False))
    return (value, pull_back, aux) if has_aux else (value, pull_back)


def _pull(pull: Any, structs: Split, cotangents: Any) -> Any:
    zeros = {path: zeros_like(struct) for path, struct in structs.values.items()}
    (result,) = pull(zeros | tangents_by_path(cotangents, structs.build(zeros), "the result", "cotangent"))
    return result.part
