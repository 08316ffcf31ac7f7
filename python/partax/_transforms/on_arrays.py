"""A call as a function of its arrays alone, which jax accepts; and trees of tangents like its trees."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import zero_from_primal

from partax import _core
from partax._pytree.filters import FilterSpec, is_array, is_inexact_array
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.methods import close_methods, open_methods
from partax._pytree.partition import combine, is_none, partition
from partax._pytree.short_text import array_text


class Rest:
    """What of a value is not an array, as a node without leaves; unlike a `Static`, also of what cannot be hashed."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rest):
            return NotImplemented
        if self.value is other.value:
            return True
        leaves, structure = jax.tree.flatten(self.value)
        other_leaves, structure_of_others = jax.tree.flatten(other.value)
        return structure == structure_of_others and all(map(_same, leaves, other_leaves))

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
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    spec: FilterSpec = is_array,
    call: Callable[..., Any] = operator.call,
) -> tuple[Callable[[Any], Split], Any]:
    """A call as a function of what a filter takes of it, those of `fun` itself included; and its argument.
    `call` is what calls it.
    """
    arrays, rest = split(((fun, *args), kwargs), spec)
    return on_split(call, rest), arrays


def on_split(fun: Callable[..., Any], rest: Rest) -> Callable[[Any], Split]:
    """A call, whose positional and named arguments were split, as a function of their arrays."""

    def run(arrays: list[Any]) -> Split:
        positional, named = joined((arrays, rest))
        return split(fun(*positional, **named))

    return run


def split(value: Any, spec: FilterSpec = is_array) -> Split:
    """The arrays of a value, as a list of its leaves with None for others, and the rest of it."""
    leaves, structure = jax.tree.flatten(value)
    arrays, static = partition(open_methods(leaves), spec)  # a list: a user's node may refuse None for an array
    return arrays, Rest((static, structure))


def joined(result: Split) -> Any:
    static, structure = result[1].value
    return jax.tree.unflatten(structure, close_methods(combine(result[0], static)))


def tree_of(structure: Any, leaves: Sequence[Any], whole: Sequence[Any] | None = None) -> Any:
    """A tree for the user with None or marks for some leaves; where a node refuses such, with the leaves `whole`, or
    the leaves alone.
    """
    try:
        return jax.tree.unflatten(structure, leaves)
    except Exception:  # whatever a user's constructor raises
        return leaves if whole is None else jax.tree.unflatten(structure, whole)


def differentiated(tree: Any, wrt: FilterSpec) -> tuple[Any, Callable[[Any], Any]]:
    """A tree with None for what is not differentiated, and a function from such a tree to a whole one. No node is built
    that has None for what is differentiated, as a user's node may refuse it. Of the user's filter the inexact arrays
    are differentiated; None is all of them.
    """
    if type(wrt) in (str, int):
        such = f"by_path({f'{wrt}/**'!r})" if isinstance(wrt, str) else "is_inexact_array; no argument's number"
        raise ValueError(
            f"found wrt={wrt!r}, expected a filter of the leaves that are differentiated, such as wrt={such}"
        )
    which = is_inexact_array if wrt is None else is_inexact_array & wrt
    spec, differentiated_leaves, fixed = flat_partition(open_methods(tree), which)

    def whole(part: Any) -> Any:
        leaves = dict(zip(differentiated_leaves, jax.tree.leaves(part), strict=True))
        return close_methods(flat_combine(spec, leaves, fixed))

    return flat_combine(spec, differentiated_leaves, dict.fromkeys(fixed)), whole


def value_and_aux(out: Any, has_aux: bool, function: str) -> tuple[Any, Any]:
    """The pair that a function is to return, if has_aux=True says so; else what it has returned, and None."""
    if not has_aux:
        return out, None
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise TypeError(
            f"{function}() was to return (value, aux), as has_aux=True says, but returned a `{type(out).__name__}`"
        )
    return out[0], out[1]


def tangent_leaves(tangents: Any, tree: Any, name: str, what: str, check: Callable[[str, Any, Any], None]) -> list[Any]:
    """The tangent, called `what`, of each leaf of a tree that messages call `name`; None of one that has none.
    `tangents` is a tree like it, with None for a leaf or a whole part. `check` is called with the path of a leaf, it
    and its tangent, and raises where they do not fit; a ValueError tells where the trees differ.
    """
    pairs = _core.broadcast_prefix(tangents, tree, is_none, f"its {what}", name)
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    known_paths = set(paths)
    for path, _ in jax.tree_util.tree_leaves_with_path(tangents):
        if path not in known_paths:
            raise ValueError(
                f"`{name}{jax.tree_util.keystr(path)}`: found a {what} where no leaf can have one, expected None"
            )
    for path, (leaf, tangent) in zip(paths, pairs, strict=True):
        if tangent is not None:
            check(name + jax.tree_util.keystr(path), leaf, tangent)
    return [tangent for _, tangent in pairs]


def filled_tangents(tangents: Any, structs: Any, name: str, what: str) -> Any:
    """Tangents, called `what`, for all leaves of a tree of `jax.ShapeDtypeStruct`s: zeros where there is None."""

    def check(path: str, struct: Any, tangent: Any) -> None:
        if jnp.shape(tangent) != struct.shape or jnp.result_type(tangent) != struct.dtype:
            raise ValueError(f"`{path}`: found the {what} {value_text(tangent)}, expected {array_text(struct)}")

    leaves_or_none = tangent_leaves(tangents, structs, name, what, check)
    leaves, structure = jax.tree.flatten(structs)
    pairs = zip(leaves, leaves_or_none, strict=True)
    return structure.unflatten([jnp.zeros(s.shape, s.dtype) if leaf is None else leaf for s, leaf in pairs])


def or_zero(tangent: Any, primal: Any) -> Any:
    """A tangent; zeros where an array has none."""
    return zero_from_primal(primal) if tangent is None and is_array(primal) else tangent


def structs_of(arrays: Any) -> Any:
    return jax.tree.map(lambda array: jax.ShapeDtypeStruct(jnp.shape(array), jnp.result_type(array)), arrays)


def value_text(value: Any) -> str:
    """A leaf in words: the dtype and shape of an array, else the type."""
    return array_text(value) if hasattr(value, "dtype") else f"a `{type(value).__name__}`"


def misfit(path: str, primal: Any, tangent: Any, what: str = "tangent") -> str:
    """The message for a tangent that is not like what it belongs to."""
    return f"`{path}`: found the {what} {value_text(tangent)}, expected one like {value_text(primal)}"
