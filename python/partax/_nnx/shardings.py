"""Shardings by Variable, and those that Variables keep when they change."""

import dataclasses
from typing import Any

import jax
from flax.nnx import graphlib
from flax.nnx.transforms.compilation import StateSharding

from partax import _core
from partax._jit.shardings import PrefixOfValue, is_sharding_leaf
from partax._nnx.graph import Variable


@dataclasses.dataclass(frozen=True)
class _OfVariables(PrefixOfValue):
    """A prefix of each value by nnx's filters of paths and Variables."""

    filters: StateSharding

    def of(self, value: Any) -> Any:
        def sharding(path: Any, leaf: Any) -> Any:
            if not isinstance(leaf, Variable):
                return None
            return self.filters.map_prefix(graphlib.jax_to_nnx_path(path), leaf)

        return jax.tree_util.tree_map_with_path(sharding, value, is_leaf=lambda it: isinstance(it, Variable))


def prefix_of(shardings: Any) -> Any:
    """A prefix as filter_jit takes it."""
    return jax.tree.map(
        lambda it: _OfVariables(it) if isinstance(it, StateSharding) else it,
        shardings,
        is_leaf=lambda it: isinstance(it, StateSharding) or is_sharding_leaf(it),
    )


def shardings_by_leaf(prefix: Any, values: tuple[Any, ...]) -> dict[int, Any]:
    """The sharding of each leaf that has one, by the leaf's id."""
    prefixes = prefix if isinstance(prefix, tuple) and not is_sharding_leaf(prefix) else (prefix,) * len(values)
    found: dict[int, Any] = {}
    for own, value in zip(prefixes, values, strict=False):
        pairs = _core.broadcast_prefix(
            own.of(value) if isinstance(own, PrefixOfValue) else own, value, is_sharding_leaf, "", ""
        )
        found.update({id(leaf): sharding for leaf, sharding in pairs if sharding is not None})
    return found


def as_before(value: Any, before: Any, by_leaf: dict[int, Any]) -> Any:
    """A new value of something, with the shardings that its arrays had."""
    known = jax.tree.leaves(before)
    leaves, structure = jax.tree.flatten(value)
    if len(known) != len(leaves):
        return value
    constrained = [
        leaf if id(old) not in by_leaf else jax.lax.with_sharding_constraint(leaf, by_leaf[id(old)])
        for old, leaf in zip(known, leaves, strict=True)
    ]
    return structure.unflatten(constrained)
