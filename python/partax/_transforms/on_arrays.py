"""A call as a function of its arrays alone, which jax accepts; and trees of tangents like its trees."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import zero_from_primal

from partax import _core
from partax._pytree.filters import FilterSpec, is_array, is_inexact_array, is_inexact_array_like
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.methods import close_methods, open_methods
from partax._pytree.partition import combine, is_none, partition
from partax._pytree.short_text import array_text


class Rest:
    """The part of a value that is not arrays, as a node without leaves; unlike `Static`, also if it has no hash."""

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


# The parts of a value that filters match, such as its arrays, and the rest.
Split = tuple[Any, ...]


def on_split(fun: Callable[..., Any], rest: Rest) -> Callable[[Any], Split]:
    """A call, whose positional and named arguments were split, as a function of their arrays."""

    def run(arrays: list[Any]) -> Split:
        positional, named = joined((arrays, rest))
        return split(fun(*positional, **named))

    return run


def split(value: Any, *filters: FilterSpec) -> Split:
    """Split a value into the leaves that each filter matches (default: arrays), as a list with None for others, and the
    rest.
    """
    leaves, structure = jax.tree.flatten(value)
    # A list, since a user's node may refuse None for an array.
    *parts, static = partition(open_methods(leaves), *(filters or (is_array,)))
    return *parts, Rest((static, structure))


def joined(value: Split) -> Any:
    *parts, rest = value
    static, structure = rest.value
    return jax.tree.unflatten(structure, close_methods(combine(*parts, static)))


def tree_of(structure: Any, leaves: Sequence[Any], whole: Sequence[Any] | None = None) -> Any:
    """Build a tree for the user with None or marks for some leaves; if a node refuses these, with the leaves `whole`,
    or return the leaves alone.
    """
    try:
        return jax.tree.unflatten(structure, leaves)
    except Exception:  # whatever a user's constructor raises
        return leaves if whole is None else jax.tree.unflatten(structure, whole)


def differentiated(tree: Any, wrt: FilterSpec) -> tuple[Any, Callable[[Any], Any]]:
    """Return a tree with None for leaves that are not differentiated, and a function from such a tree to a whole one.
    No node is built that has None for a differentiated leaf, as a user's node may refuse it. Of the leaves that `wrt`
    matches, the inexact arrays are differentiated; None matches all.
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
    """Return the pair that a function returned with `has_aux`; else its result, and None."""
    if not has_aux:
        return out, None
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise TypeError(
            f"{function}() was to return (value, aux), as has_aux=True says, but returned a `{type(out).__name__}`"
        )
    return out[0], out[1]


def tangent_leaves(tangents: Any, tree: Any, name: str, what: str, ignore_others: bool = False) -> list[Any]:
    """The tangent, called `what`, of each leaf of a tree that messages call `name`; None of one that has none.

    `tangents` is a tree like it, with None for a leaf or a whole part. Those of leaves that cannot have one are errors,
    or None with `ignore_others`. A ValueError names the path where the trees or shapes differ, a TypeError where dtypes
    do.
    """
    pairs = _core.broadcast_prefix(tangents, tree, is_none, f"its {what}", name)
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    leaf_paths = set(paths)
    for path, _ in jax.tree_util.tree_leaves_with_path(tangents):
        if path not in leaf_paths:
            raise ValueError(
                f"`{name}{jax.tree_util.keystr(path)}`: found a {what} where no leaf can have one, expected None"
            )
    leaves: list[Any] = []
    for path, (leaf, tangent) in zip(paths, pairs, strict=True):
        leaves.append(None)
        if tangent is None or jnp.result_type(tangent) == jax.dtypes.float0:  # JAX's tangent of an integer
            continue
        place = f"`{name}{jax.tree_util.keystr(path)}`: found "
        if is_inexact_array_like(leaf) or hasattr(leaf, "__jax_array__"):
            misfit = f"{place}the {what} {value_text(tangent)}, expected one like {value_text(leaf)}"
            if jnp.shape(leaf) != jnp.shape(tangent):
                raise ValueError(misfit)
            if jnp.result_type(leaf) != jnp.result_type(tangent):
                raise TypeError(misfit)
            leaves[-1] = tangent
        elif not ignore_others:
            raise TypeError(f"{place}a {what} for {value_text(leaf)}, which can have none; expected None")
    return leaves


def fill_tangents(tangents: Any, structs: Any, name: str, what: str) -> Any:
    """Tangents, called `what`, for all leaves of a tree of `jax.ShapeDtypeStruct`s, with zeros instead of None."""
    zeros = jax.tree.map(lambda struct: np.broadcast_to(np.zeros((), struct.dtype), struct.shape), structs)
    leaves, structure = jax.tree.flatten(zeros)
    pairs = zip(leaves, tangent_leaves(tangents, zeros, name, what), strict=True)
    return structure.unflatten([zero if tangent is None else tangent for zero, tangent in pairs])


def or_zero(tangent: Any, primal: Any) -> Any:
    """A tangent; zeros where an array has none."""
    return zero_from_primal(primal) if tangent is None and is_array(primal) else tangent


def structs_of(arrays: Any) -> Any:
    return jax.tree.map(lambda array: jax.ShapeDtypeStruct(jnp.shape(array), jnp.result_type(array)), arrays)


def value_text(value: Any) -> str:
    """A leaf in words: the dtype and shape of an array, else the type."""
    return array_text(value) if hasattr(value, "dtype") else f"a `{type(value).__name__}`"
