"""A call as a function of its arrays alone, which is what jax can take."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax

from partax import _core
from partax._pytree.filters import FilterSpec, is_array
from partax._pytree.partition import combine, partition


class Rest:
    """What of a value is no array, as a node without leaves; unlike a `Static`, also of what cannot be hashed."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rest):
            return NotImplemented
        if self.value is other.value:
            return True
        leaves, structure = jax.tree.flatten(self.value)
        others, structure_of_others = jax.tree.flatten(other.value)
        return structure == structure_of_others and all(map(_same, leaves, others))

    def __hash__(self) -> int:
        return hash(Rest)  # few are ever compared


jax.tree_util.register_pytree_node(Rest, lambda rest: ((), rest), lambda rest, _: rest)


def _same(leaf: Any, other: Any) -> bool:
    try:
        return leaf is other or _core.static_equal(leaf, other)
    except TypeError:  # one of them cannot be compared
        return False


# The arrays of a result, and the rest of it.
Split = tuple[Any, Rest]


def on_arrays(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], taken: FilterSpec = is_array
) -> tuple[Callable[[Any], Split], Any]:
    """A call as a function of what a filter takes of it, those of `fun` itself included; and its argument."""
    arrays, rest = split(((fun, *args), kwargs), taken)
    return on_split(operator.call, rest), arrays


def on_split(fun: Callable[..., Any], rest: Rest) -> Callable[[Any], Split]:
    """A call, whose positional and named arguments were split, as a function of their arrays."""

    def run(arrays: list[Any]) -> Split:
        positional, named = joined((arrays, rest))
        return split(fun(*positional, **named))

    return run


def split(value: Any, taken: FilterSpec = is_array) -> Split:
    """The arrays of a value, as a list of its leaves with None for others, and the rest of it."""
    leaves, structure = jax.tree.flatten(value)
    arrays, static = partition(leaves, taken)  # a list: a user's node may refuse None for an array
    return arrays, Rest((static, structure))


def joined(result: Split) -> Any:
    static, structure = result[1].value
    return jax.tree.unflatten(structure, combine(result[0], static))


def tree_of(structure: Any, leaves: Sequence[Any], whole: Sequence[Any] | None = None) -> Any:
    """A tree for the user with None or marks for some leaves; where a node refuses such, with the leaves `whole`, or
    the leaves alone.
    """
    try:
        return jax.tree.unflatten(structure, leaves)
    except Exception:  # whatever a user's constructor raises
        return leaves if whole is None else jax.tree.unflatten(structure, whole)
