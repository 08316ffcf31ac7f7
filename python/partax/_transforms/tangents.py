"""Trees of tangents beside the trees that they belong to."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import zero_from_primal

from partax import _core
from partax._pytree.array_text import array_text
from partax._pytree.filters import FilterSpec, all_of, is_array, is_inexact_array
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.partition import is_none


def differentiated(tree: Any, wrt: FilterSpec) -> tuple[Any, Callable[[Any], Any]]:
    """A tree with None for what is not differentiated, and a function from such a tree to a whole one.

    No node is built that has None for what is differentiated, as a user's node may refuse it. Of the user's filter the
    inexact arrays are differentiated; None is all of them.
    """
    if type(wrt) in (str, int):
        such = f"by_path({f'{wrt}/**'!r})" if isinstance(wrt, str) else "is_inexact_array; no argument's number"
        raise ValueError(
            f"found wrt={wrt!r}, expected a filter of the leaves that are differentiated, such as wrt={such}"
        )
    which = is_inexact_array if wrt is None else all_of(is_inexact_array, wrt)
    spec, taken, fixed = flat_partition(tree, which)

    def whole(part: Any) -> Any:
        return flat_combine(spec, dict(zip(taken, jax.tree.leaves(part), strict=True)), fixed)

    return flat_combine(spec, taken, dict.fromkeys(fixed)), whole


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
    known = set(paths)
    for path, _ in jax.tree_util.tree_leaves_with_path(tangents):
        if path not in known:
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

    given = tangent_leaves(tangents, structs, name, what, check)
    leaves, structure = jax.tree.flatten(structs)
    pairs = zip(leaves, given, strict=True)
    return structure.unflatten([jnp.zeros(it.shape, it.dtype) if given is None else given for it, given in pairs])


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
