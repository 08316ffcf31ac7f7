"""Branches of any trees: `jax.lax`'s own, around which the static parts pass."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar, TypeVarTuple

import jax
import numpy as np

from partax import _core
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
    names = ("true_fun", "false_fun")
    return _one_of(
        "filter_cond", (true_fun, false_fun), names, operands, lambda funs, arrays: jax.lax.cond(pred, *funs, *arrays)
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
      ValueError: there are no branches.
    """
    if not branches:
        raise ValueError("`branches`: found none, expected one or more")
    names = [f"branches[{i}]" for i in range(len(branches))]
    return _one_of(
        "filter_switch", branches, names, operands, lambda funs, arrays: jax.lax.switch(index, funs, *arrays)
    )


class _Results:
    """What the branches return, which has to be alike: the static part and the types of the first result."""

    def __init__(self, types: dict[str, carry.ArrayType]):
        self._types = types
        self._first: tuple[str, carry.Flat] | None = None

    def arrays(self, name: str, result: Any) -> list[Any]:
        """The arrays of one branch's result. `Unsettled` if leaves have to have other types."""
        if self._types:
            whole, leaves, _ = flat_partition(result, True)
            leaves |= {path: _as(leaves[path], type) for path, type in self._types.items() if path in leaves}
            result = flat_combine(whole, leaves)
        leaves, spec = _core.flatten(result, "result")
        flat = carry.Flat(spec, list(map(carry.array_type, leaves)))
        if self._first is None:
            self._first = name, flat
            return leaves
        first, expected = self._first
        # jax itself joins weak types to others of the same dtype.
        shapes, wanted = ([(type.shape, type.dtype) for type in each.arrays] for each in (flat, expected))
        if spec == expected.spec and shapes == wanted:
            return leaves
        difference = carry.first_difference(expected, flat, "result", True)
        if difference is not None:
            _fail(difference, first, name)
        types: dict[str, carry.ArrayType] = {}
        other = _leaves(flat)
        for path, leaf in _leaves(expected).items():
            beside = other[path]
            if leaf is beside or _core.static_equal((leaf,), (beside,)):
                continue
            together = carry.joined(carry.array_type(leaf), carry.array_type(beside))
            if together is None:
                _fail(carry.Difference(f"result{path}", carry.value_text(leaf), carry.value_text(beside)), first, name)
            types[path] = together
        if types.items() <= self._types.items():
            _fail(carry.unsteady("result"), first, name)
        raise carry.Unsettled(self, types)

    def rebuilt(self, leaves: Sequence[Any]) -> Any:
        assert self._first is not None
        return self._first[1].spec.rebuild(leaves)


def _leaves(flat: carry.Flat) -> dict[str, Any]:
    types = iter(flat.arrays)
    leaves = flat_partition(flat.spec.rebuild([np.False_] * len(flat.arrays)), True)[1]
    return {path: next(types) if _core.is_array(leaf) else leaf for path, leaf in leaves.items()}


def _as(leaf: Any, target: carry.ArrayType) -> Any:
    """A leaf as an array of another type, where it may have it."""
    is_one = carry.is_number(leaf) or _core.is_array(leaf)
    return carry.converted(leaf, target) if is_one and carry.joined(carry.array_type(leaf), target) == target else leaf


def _fail(found: carry.Difference, one: str, other: str) -> NoReturn:
    raise TypeError(
        f"`{found.path}`: {found.first} of {one}, {found.second} of {other}{found.note}; the results of branches may "
        "differ only in the values of arrays"
    )


def _one_of(
    transformation: str,
    functions: Sequence[Callable[..., Any]],
    names: Sequence[str],
    operands: tuple[Any, ...],
    choose: Callable[[Sequence[Callable[..., Any]], Sequence[carry.Arrays]], Any],
) -> Any:
    """The result of one function, as `choose` traces them on the arrays of the operands."""
    objects = Objects(transformation, [(f"operands[{i}]", operand) for i, operand in enumerate(operands)])
    flat = [(f"operands[{i}]", *_core.flatten(operand, f"operands[{i}]")) for i, operand in enumerate(operands)]
    arrays = [carry.Arrays.of(leaves, spec, root) for root, leaves, spec in flat]
    types: dict[str, carry.ArrayType] = {}
    while True:
        results = _Results(types)

        def on_arrays(
            function: Callable[..., Any], name: str, results: _Results = results
        ) -> Callable[..., Sequence[Any]]:
            def branch(*arrays: carry.Arrays) -> Sequence[Any]:
                own = [spec.rebuild(one.leaves) for (_, _, spec), one in zip(flat, arrays, strict=True)]
                return results.arrays(name, objects.refuse_changes(function)(*own))

            return carry.in_place_of(function, branch)

        try:
            chosen = choose([on_arrays(*one) for one in zip(functions, names, strict=True)], arrays)
            return results.rebuilt(chosen)
        except carry.Unsettled as unsettled:
            if unsettled.owner is not results:
                raise
            types |= unsettled.types
