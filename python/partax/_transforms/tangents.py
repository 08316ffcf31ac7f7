"""What is differentiated of a tree, and trees of tangents like a tree."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from partax._core import is_inexact_array_like
from partax._pytree.filters import FilterSpec, is_array, is_inexact_array
from partax._pytree.flat_partition import flat_partition
from partax._pytree.partition import is_none
from partax._transforms.split import Rest, Split, leaf_text, spread


def differentiated(tree: Any, wrt: FilterSpec) -> Split:
    """Split a tree into the inexact arrays that `wrt` matches, or all, and the rest."""
    if type(wrt) in (str, int):
        such = f"by_path({f'{wrt}/**'!r})" if isinstance(wrt, str) else "is_inexact_array; no argument's number"
        raise ValueError(f"found wrt={wrt!r}, expected a filter of leaves, such as wrt={such}")
    structure, leaves, rest = flat_partition(tree, is_inexact_array if wrt is None else is_inexact_array & wrt)
    return Split(Rest(structure, rest), leaves)


def value_and_aux(out: Any, has_aux: bool, function: str) -> tuple[Any, Any]:
    if not has_aux:
        return out, None
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise TypeError(
            f"{function}() was to return (value, aux), as has_aux=True says, but returned a `{type(out).__name__}`"
        )
    return out[0], out[1]


def tangents_by_path(tangents: Any, tree: Any, name: str, what: str, ignore_others: bool = False) -> dict[str, Any]:
    """The tangents of the leaves of a tree that have one; with `ignore_others`, leaves that cannot have one may."""
    pairs = spread(tangents, tree, is_none, f"its {what}", name)
    for key, _ in jax.tree_util.tree_leaves_with_path(tangents):
        if (path := jax.tree_util.keystr(key)) not in pairs:
            raise ValueError(f"`{name}{path}`: found a {what} where no leaf can have one, expected None")
    leaves: dict[str, Any] = {}
    for path, (leaf, tangent) in pairs.items():
        if tangent is None or jnp.result_type(tangent) == jax.dtypes.float0:  # JAX's tangent of an integer
            continue
        if is_inexact_array_like(leaf) or hasattr(leaf, "__jax_array__"):
            misfit = f"`{name}{path}`: found the {what} {leaf_text(tangent)}, expected one like {leaf_text(leaf)}"
            if jnp.shape(leaf) != jnp.shape(tangent):
                raise ValueError(misfit)
            if jnp.result_type(leaf) != jnp.result_type(tangent):
                raise TypeError(misfit)
            leaves[path] = tangent
        elif not ignore_others:
            raise TypeError(f"`{name}{path}`: found a {what} for {leaf_text(leaf)}, which can have none; expected None")
    return leaves


def zeros_like(leaf: Any) -> Any:
    """The zeros that are the tangent of an array; another leaf itself."""
    if is_array(leaf):
        leaf = jax.typeof(leaf).to_tangent_aval()
    elif not isinstance(leaf, (jax.ShapeDtypeStruct, SymbolicZero)):
        return leaf
    aval: Any = leaf
    return np.broadcast_to(np.zeros((), aval.dtype), aval.shape)


def build_tangent(split: Split, tangents: dict[str, Any]) -> Any:
    """Build a tree of tangents with None for other leaves; if a user's node refuses None, with zeros."""
    return split.build(tangents, lambda: {path: zeros_like(leaf) for path, leaf in split.values.items()} | tangents)
