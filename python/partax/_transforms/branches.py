"""Branches of any trees: `jax.lax`'s own, around which the static parts pass."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar, TypeVarTuple

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from partax import _core
from partax._jax.private import runs_without_jit
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._transforms import carry
from partax._transforms.objects import Objects

_R = TypeVar("_R")
_Operands = TypeVarTuple("_Operands")


def filter_cond(
    pred: Any, true_fun: Callable[[*_Operands], _R], false_fun: Callable[[*_Operands], _R], *operands: *_Operands
) -> _R:
    """`jax.lax.cond` for any trees: arrays are operands and results, everything else is static.

    Example:
      >>> state = {"x": jnp.float32(3), "name": "a"}
      >>> double = lambda state: {**state, "x": state["x"] * 2}
      >>> partax.filter_cond(state["x"] > 1, double, lambda state: state, state)
      {'name': 'a', 'x': Array(6., dtype=float32)}

    Args:
      pred: a bool or a scalar array.
      true_fun: what is run if `pred` is true. What it captures or, as a module, holds is differentiated through.
      false_fun: what is run if it is not.
      *operands: what either is called with.

    Returns:
      The result of one of them. What is not an array is the same in both, and comes back as it is; Python numbers that
      differ become arrays.

    Raises:
      TypeError: the static parts, the dtypes or the shapes of the two results differ, by their path with both.
    """
    names, functions = ("true_fun", "false_fun"), (true_fun, false_fun)
    return _one_of(
        "filter_cond", pred, functions, names, operands, lambda pred, funs, *a: jax.lax.cond(pred, *funs, *a)
    )


def filter_switch(index: Any, branches: Sequence[Callable[[*_Operands], _R]], *operands: *_Operands) -> _R:
    """`jax.lax.switch` for any trees: arrays are operands and results, everything else is static.

    Example:
      >>> lengths = [lambda x: {"length": x, "unit": "m"}, lambda x: {"length": x * 1000, "unit": "m"}]
      >>> partax.filter_switch(1, lengths, jnp.float32(3))
      {'length': Array(3000., dtype=float32), 'unit': 'm'}

    Args:
      index: an integer, or a scalar array of one, which is clamped to the branches.
      branches: functions of the operands.
      *operands: what they are called with.

    Returns:
      The result of one of them; as for `filter_cond`.

    Raises:
      TypeError: as for `filter_cond`.
      ValueError: `branches` is empty.
    """
    if not branches:
        raise ValueError("`branches`: found none, expected one or more")
    names = [f"branches[{i}]" for i in range(len(branches))]
    return _one_of("filter_switch", index, branches, names, operands, jax.lax.switch)


class _Branch(NamedTuple):
    """One branch as jax has traced it."""

    name: str
    program: ClosedJaxpr
    result: carry.Flat  # the static part, and the types of the arrays
    leaves: dict[str, Any]  # of the result by path: types of arrays, and static values


def _leaves(flat: carry.Flat) -> dict[str, Any]:
    types = iter(flat.arrays)
    leaves = flat_partition(flat.spec.rebuild([np.False_] * len(flat.arrays)), True)[1]
    return {path: next(types) if _core.is_array(leaf) else leaf for path, leaf in leaves.items()}


def _fail(difference: carry.Difference, one: str, other: str) -> NoReturn:
    raise TypeError(
        f"`{difference.path}`: {difference.first} of {one}, {difference.second} of {other}{difference.note}; the "
        "results of branches may differ only in the values of arrays"
    )


def _one_of(
    transformation: str,
    index: Any,
    functions: Sequence[Callable[..., Any]],
    names: Sequence[str],
    operands: tuple[Any, ...],
    choose: Callable[..., Any],
) -> Any:
    """The result of one function, as `choose(index, functions, *operands)` of jax gives it for arrays. Each branch is
    traced once, on its own, since the types of the results depend on all of them.
    """
    objects = Objects(transformation, [(f"operands[{i}]", operand) for i, operand in enumerate(operands)])
    flat = [(f"operands[{i}]", *_core.flatten(operand, f"operands[{i}]")) for i, operand in enumerate(operands)]
    arrays = [carry.Arrays.of(leaves, spec, root) for root, leaves, spec in flat]
    if runs_without_jit() and not isinstance(index, Tracer):
        return choose(index, [objects.refuse_changes(function) for function in functions], *operands)
    specs = [spec for _, _, spec in flat]
    branches = [
        _traced(objects.refuse_changes(fun), fun, name, specs, arrays)
        for fun, name in zip(functions, names, strict=True)
    ]
    types = _common_types(branches)
    chosen = choose(index, [functools.partial(_run, branch, types) for branch in branches], *arrays)
    result = branches[0].result
    whole, leaves, _ = flat_partition(result.spec.rebuild([np.False_] * len(result.arrays)), True)
    return flat_combine(whole, leaves | dict(zip(types, chosen, strict=True)))


def _traced(
    function: Callable[..., Any],
    original: Any,
    name: str,
    specs: Sequence[_core.TreeSpec],
    arrays: Sequence[carry.Arrays],
) -> _Branch:
    results: list[carry.Flat] = []

    def branch(*arrays: carry.Arrays) -> Sequence[Any]:
        result = function(*(spec.rebuild(one.leaves) for spec, one in zip(specs, arrays, strict=True)))
        leaves, spec = _core.flatten(result, "result")
        results.append(carry.Flat(spec, list(map(carry.array_type, leaves))))
        return leaves

    with jax.disable_jit(False):  # else a loop in it would really run
        program = jax.make_jaxpr(carry.in_place_of(original, branch))(*arrays)
    return _Branch(name, program, results[0], _leaves(results[0]))


def _common_types(branches: Sequence[_Branch]) -> dict[str, carry.ArrayType]:
    """The types of all arrays of the result by path, among them numbers in which the branches differ."""
    first, *other_branches = branches
    for other in other_branches:
        difference = carry.first_difference(first.result, other.result, "result", True)
        if difference is not None:
            _fail(difference, first.name, other.name)
    types: dict[str, carry.ArrayType] = {}
    for path, leaf in first.leaves.items():
        other_leaves = [other.leaves[path] for other in other_branches]
        if not isinstance(leaf, carry.ArrayType) and all(_core.static_equal((leaf,), (one,)) for one in other_leaves):
            continue
        type, text = carry.array_type(leaf), carry.value_text(leaf)
        for other, one in zip(other_branches, other_leaves, strict=True):
            common = carry.joined(type, carry.array_type(one))
            if common is None:
                _fail(carry.Difference(f"result{path}", text, carry.value_text(one)), first.name, other.name)
            type, text = common, text if common == type else common.text
        types[path] = type
    return types


def _run(branch: _Branch, types: Mapping[str, carry.ArrayType], *arrays: carry.Arrays) -> list[Any]:
    returned = iter(jaxpr_as_fun(branch.program)(*jax.tree.leaves(arrays)))
    values = {
        path: next(returned) if isinstance(leaf, carry.ArrayType) else leaf for path, leaf in branch.leaves.items()
    }
    return [
        values[path] if carry.array_type(values[path]) == type else carry.converted(values[path], type)
        for path, type in types.items()
    ]
