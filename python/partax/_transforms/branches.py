"""Branches of any trees: `jax.lax`'s own, around which the static parts pass."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, TypeVarTuple

import jax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun  # pyright: ignore[reportPrivateImportUsage]

from partax._jax.private import runs_without_jit
from partax._transforms.carry import common_types, convert, in_place_of
from partax._transforms.objects import Objects
from partax._transforms.split import Split

_R = TypeVar("_R")
_Operands = TypeVarTuple("_Operands")


def filter_cond(
    pred: Any, true_fun: Callable[[*_Operands], _R], false_fun: Callable[[*_Operands], _R], *operands: *_Operands
) -> _R:
    """Run one of two functions. Same as `jax.lax.cond`, for any pytree: arrays are operands and results.

    Example:
      >>> state = {"x": jnp.float32(3), "name": "a"}
      >>> double = lambda state: {**state, "x": state["x"] * 2}
      >>> partax.filter_cond(state["x"] > 1, double, lambda state: state, state)
      {'name': 'a', 'x': Array(6., dtype=float32)}

    Args:
      pred: A bool or a scalar array.
      true_fun, false_fun: The functions; gradients flow through what they capture or, as modules, hold.
      *operands: The arguments of both functions.

    Returns:
      The result of one of them.

    Raises:
      TypeError: The results differ in more than the values of arrays and numbers; the message has the path and both.

    See Also: The guide "Loops, branches and layers".
    """
    functions = {"true_fun": true_fun, "false_fun": false_fun}
    return _one_of("filter_cond", pred, functions, operands, lambda pred, funs, *a: jax.lax.cond(pred, *funs, *a))


def filter_switch(index: Any, branches: Sequence[Callable[[*_Operands], _R]], *operands: *_Operands) -> _R:
    """Run one of several functions. Same as `jax.lax.switch`, for any pytree: arrays are operands and results.

    Example:
      >>> lengths = [lambda x: {"length": x, "unit": "m"}, lambda x: {"length": x * 1000, "unit": "m"}]
      >>> partax.filter_switch(1, lengths, jnp.float32(3))
      {'length': Array(3000., dtype=float32), 'unit': 'm'}

    Args:
      index: An integer, or a scalar array of one, which is clamped to the branches.
      branches: One or more functions of the operands, whose results agree as in `filter_cond`.
      *operands: The arguments of each branch.

    Returns:
      The result of one of them.

    Raises:
      TypeError, ValueError: Same as in `filter_cond`, or `branches` is empty.

    See Also: The guide "Loops, branches and layers".
    """
    if not branches:
        raise ValueError("`branches`: found none, expected one or more")
    functions = {f"branches[{i}]": branch for i, branch in enumerate(branches)}
    return _one_of("filter_switch", index, functions, operands, jax.lax.switch)


def _one_of(
    transformation: str,
    index: Any,
    functions: Mapping[str, Callable[..., Any]],
    operands: tuple[Any, ...],
    choose: Callable[..., Any],
) -> Any:
    """Run one function by `choose` of jax. Each branch is traced once, as the types of results depend on all."""
    roots = [f"operands[{i}]" for i in range(len(operands))]
    objects = Objects(transformation, zip(roots, operands, strict=True))
    if runs_without_jit() and not isinstance(index, Tracer):
        return choose(index, [objects.refuse_changes(function) for function in functions.values()], *operands)
    splits = [Split.of(operand, root=root) for root, operand in zip(roots, operands, strict=True)]
    branches = [_trace(function, objects.refuse_changes(function), splits) for function in functions.values()]
    results = {f"of {name}": result for name, (_, result) in zip(functions, branches, strict=True)}
    types = common_types(results, "result", "the results of branches may differ only in the values of arrays")

    def run(program: ClosedJaxpr, result: Split, *operands: Split) -> dict[str, Any]:
        return convert(result.replace(jaxpr_as_fun(program)(*jax.tree.leaves(operands))), types)

    chosen = choose(index, [functools.partial(run, *branch) for branch in branches], *splits)
    return branches[0][1].update(chosen).tree


def _trace(function: Any, refusing: Callable[..., Any], operands: Sequence[Split]) -> tuple[ClosedJaxpr, Split]:
    """Return the program of a branch, and its result with a `jax.ShapeDtypeStruct` for each array."""

    def branch(*operands: Split) -> Split:
        return Split.of(refusing(*(operand.tree for operand in operands)), root="result")

    with jax.disable_jit(False):  # else a loop in it would really run
        return jax.make_jaxpr(in_place_of(function, branch), return_shape=True)(*operands)
