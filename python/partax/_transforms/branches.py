"""Branches of any trees: `jax.lax`'s own, around which the static parts pass."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

import jax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from partax import _core
from partax._jax.private import runs_without_jit
from partax._transforms.carry import Arrays, ArrayType, Leaves, common_types, in_place_of
from partax._transforms.objects import Objects

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

    The results may differ only in the values of arrays; Python numbers that differ become arrays.

    Args:
      pred: A bool or a scalar array.
      true_fun: The function that runs if `pred` is true. It is differentiated through what it captures or, as a module,
        holds.
      false_fun: The function that runs if it is not.
      *operands: The arguments of both functions.

    Returns:
      The result of one of them.

    Raises:
      TypeError: The static parts, the dtypes or the shapes of the two results differ, by their path with both.

    See Also:
      The guide "Loops, branches and layers".
    """
    names, functions = ("true_fun", "false_fun"), (true_fun, false_fun)
    return _one_of(
        "filter_cond", pred, functions, names, operands, lambda pred, funs, *a: jax.lax.cond(pred, *funs, *a)
    )


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
      TypeError: Same as in `filter_cond`.
      ValueError: `branches` is empty.

    See Also:
      The guide "Loops, branches and layers".
    """
    if not branches:
        raise ValueError("`branches`: found none, expected one or more")
    names = [f"branches[{i}]" for i in range(len(branches))]
    return _one_of("filter_switch", index, branches, names, operands, jax.lax.switch)


_RULE = "the results of branches may differ only in the values of arrays"


class _Branch(NamedTuple):
    """One branch that jax has traced."""

    program: ClosedJaxpr
    result: Leaves

    def run(self, types: Mapping[str, ArrayType], *arrays: Arrays) -> list[Any]:
        values = iter(jaxpr_as_fun(self.program)(*jax.tree.leaves(arrays)))
        returned = dict(zip(self.result.arrays.paths, values, strict=True))
        return self.result._replace(values=self.result.values | returned).convert(types)


def _one_of(
    transformation: str,
    index: Any,
    functions: Sequence[Callable[..., Any]],
    names: Sequence[str],
    operands: tuple[Any, ...],
    choose: Callable[..., Any],
) -> Any:
    """Run one function by `choose` of jax. Each branch is traced once, as the types of results depend on all."""
    objects = Objects(transformation, [(f"operands[{i}]", operand) for i, operand in enumerate(operands)])
    flat = [(f"operands[{i}]", *_core.flatten(operand, f"operands[{i}]")) for i, operand in enumerate(operands)]
    arrays = [Arrays.of(leaves, spec, root) for root, leaves, spec in flat]
    if runs_without_jit() and not isinstance(index, Tracer):
        return choose(index, [objects.refuse_changes(function) for function in functions], *operands)
    specs = [spec for _, _, spec in flat]
    branches = [
        _trace(objects.refuse_changes(fun), fun, name, specs, arrays)
        for fun, name in zip(functions, names, strict=True)
    ]
    types = common_types([branch.result for branch in branches], "result", _RULE)
    chosen = choose(index, [functools.partial(branch.run, types) for branch in branches], *arrays)
    return branches[0].result.rebuild(dict(zip(types, chosen, strict=True)))


def _trace(
    function: Callable[..., Any], original: Any, name: str, specs: Sequence[_core.TreeSpec], arrays: Sequence[Arrays]
) -> _Branch:
    results: list[Leaves] = []

    def branch(*arrays: Arrays) -> Sequence[Any]:
        result = function(*(spec.rebuild(one.leaves) for spec, one in zip(specs, arrays, strict=True)))
        leaves = Leaves.of(f"of {name}", result, "result")
        results.append(leaves.without_arrays())
        return leaves.arrays.leaves

    with jax.disable_jit(False):  # else a loop in it would really run
        program = jax.make_jaxpr(in_place_of(original, branch))(*arrays)
    return _Branch(program, results[0])
