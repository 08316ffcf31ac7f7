"""The carries of loops and the results of branches: the types that their arrays and numbers settle to."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from partax._transforms.split import (
    ArrayType,
    Difference,
    Split,
    array_type,
    first_difference,
    is_number,
    is_same,
    is_typed,
    leaf_text,
)

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")


def in_place_of(function: Callable[..., Any], body: _F) -> _F:
    """Set the name and parameters of a function, in jax's messages, to those of the user's function."""
    if inspect.isroutine(function):
        functools.update_wrapper(body, function, assigned=(), updated=())
    return body


def can_settle(leaf: Any) -> bool:
    """Return whether a leaf is an array or a Python number, whose type may change."""
    return is_typed(leaf) or is_number(leaf)


def _may_become_same(leaf: Any, other: Any) -> bool:
    return (can_settle(leaf) and can_settle(other)) or is_same(leaf, other)


def joined(one: ArrayType, other: ArrayType) -> ArrayType | None:
    """The type of two arrays in one place; None if there is none: strong dtypes never change, nor do shapes."""
    weak = one.weak and other.weak
    if one.shape != other.shape:
        return None
    if one.dtype == other.dtype:
        return one._replace(weak=weak)
    if any(jnp.issubdtype(dtype, jax.dtypes.extended) for dtype in (one.dtype, other.dtype)):
        return None
    # Promotion does not look at the dtype of a Python number.
    dtype = jnp.result_type(*(np.zeros((), each.dtype).item() if each.weak else each.dtype for each in (one, other)))
    fits = all(each.weak or each.dtype == dtype for each in (one, other))
    return ArrayType(one.shape, dtype, weak) if fits else None


def _has_type(leaf: Any, target: ArrayType) -> bool:
    return is_typed(leaf) and array_type(leaf) == target


def _convert(leaf: Any, target: ArrayType) -> Any:
    if _has_type(leaf, target):
        return leaf
    if target.weak:
        # Promotion with a Python number is the public way to an array of weak type.
        weak: jax.Array = jnp.where(True, leaf, np.zeros((), target.dtype).item())
        if weak.dtype == target.dtype:
            return weak
    return jax.lax.convert_element_type(leaf, target.dtype)


def convert(split: Split, types: Mapping[str, ArrayType]) -> dict[str, Any]:
    """Convert the leaves at the paths of types to arrays of these, which they have been joined to."""
    values = split.values
    return {path: _convert(values[path], type) for path, type in types.items()}


def common_types(trees: Mapping[str, Split], root: str, rule: str) -> dict[str, ArrayType]:
    """The types of the arrays of trees by path, and of the numbers that are not equal in all. A TypeError with a `rule`
    if the trees, which messages call by the words before them, differ in anything else.
    """
    (words, first), *rest = trees.items()

    def fail(difference: Difference, other_words: str) -> None:
        path, text, other_text, note = difference
        raise TypeError(f"`{path}`: {text} {words}, {other_text} {other_words}{note}; {rule}")

    for other_words, other in rest:
        if difference := first_difference(first, other, root, _may_become_same):
            fail(difference, other_words)
    types: dict[str, ArrayType] = {}
    values = {other_words: other.values for other_words, other in rest}
    for path, leaf in first.values.items():
        leaves = {other_words: leaves[path] for other_words, leaves in values.items()}
        if not is_typed(leaf) and all(not is_typed(other) and is_same(leaf, other) for other in leaves.values()):
            continue
        type, text = array_type(leaf), leaf_text(leaf)
        for other_words, other in leaves.items():
            common = joined(type, array_type(other))
            if common is None:
                fail(Difference(root + path, text, leaf_text(other)), other_words)
            elif common != type:
                type, text = common, common.text
        types[path] = type
    return types


class Carry:
    """A carry with the types that its arrays have in this trace of a loop."""

    def __init__(self, tree: Any, root: str, step: str):
        self._root = root
        self._step = step
        self.split = Split.of(tree, root=root)
        self.promotions: dict[str, ArrayType] = {}  # the types that a step computes for leaves, if they are different

    def has_promotable_leaves(self) -> bool:
        """Return whether it has Python numbers or arrays of weak type, which a step may promote."""
        leaves = self.split.values.values()
        return any(is_number(leaf) or (is_typed(leaf) and array_type(leaf).weak) for leaf in leaves)

    def after(self, before: Split, tree: Any) -> Split:
        """The tree that a step returns, with the types of the carry; the one before it if there are promotions."""
        result = Split.of(tree, root=self._root)
        words = {f"before {self._step}": self.split, "after it": result}
        types = common_types(words, self._root, "only the values of arrays may change between steps")
        values = self.split.values
        self.promotions = {path: type for path, type in types.items() if not _has_type(values[path], type)}
        return before if self.promotions else self.split.update(convert(result, types))


def run_with_promoted_carry(init: Any, run: Callable[[Carry], _T], root: str = "carry", step: str = "the step") -> _T:
    """Run a loop with a carry of the types that a step returns. If the carry has Python numbers or weak types, the loop
    is traced without running it first, until no type is promoted: each trace makes a leaf an array, its dtype wider or
    its type strong, so it ends. Messages call a step `step`, and paths into the carry begin with `root`.
    """
    carry = Carry(init, root, step)
    while carry.has_promotable_leaves():
        with jax.disable_jit(False):  # else a loop would really run
            jax.eval_shape(functools.partial(run, carry))
        if not carry.promotions:
            break
        carry = Carry(carry.split.update(convert(carry.split, carry.promotions)).tree, root, step)
    return run(carry)
