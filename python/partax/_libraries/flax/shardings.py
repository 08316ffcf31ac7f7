"""Shardings by Variable, and those that Variables keep when they change."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from flax.nnx import extract, graphlib
from flax.nnx.transforms.compilation import StateSharding

from partax import _core
from partax._jit.shardings import NoEntry, PrefixOfValue, is_sharding_leaf, prefix_for
from partax._libraries.flax.graph import Variable, is_object


class _ByPath(PrefixOfValue):
    """A prefix of each value by the paths of its Variables."""

    def sharding(self, path: Any, variable: Any) -> Any:
        raise NotImplementedError

    def of(self, value: Any) -> Any:
        def sharding(path: Any, leaf: Any) -> Any:
            return self.sharding(graphlib.jax_to_nnx_path(path), leaf) if isinstance(leaf, Variable) else None

        return jax.tree_util.tree_map_with_path(sharding, value, is_leaf=lambda it: isinstance(it, Variable))


@dataclasses.dataclass(frozen=True)
class _OfFilters(_ByPath):
    filters: StateSharding

    def sharding(self, path: Any, variable: Any) -> Any:
        return self.filters.map_prefix(path, variable)


@dataclasses.dataclass(frozen=True)
class _OfTree(_ByPath):
    """As `nnx.prefix(tree, ..., graph=True)` has found them, in which a Variable that comes again stands once."""

    known: tuple[tuple[Any, Any], ...]
    of_others: Callable[[Any, Any], Any]

    @classmethod
    def made(cls, tree: Any) -> "_OfTree":
        if not callable(tree.prefix_fn.value):
            raise ValueError("found a `TreeState` as a prefix, expected what `nnx.prefix(tree, ..., graph=True)` gives")
        found = jax.tree_util.tree_leaves_with_path(tree.state, is_leaf=is_sharding_leaf)
        known = tuple([(graphlib.jax_to_nnx_path(path), sharding) for path, sharding in found])
        return cls(known, tree.prefix_fn.value)

    def sharding(self, path: Any, variable: Any) -> Any:
        return next((own for at, own in self.known if at == path), None) or self.of_others(path, variable)


def prefix_of(shardings: Any) -> Any:

    def own(it: Any) -> Any:
        if isinstance(it, StateSharding):
            return _OfFilters(it)
        return _OfTree.made(it) if isinstance(it, extract.TreeState) else it

    def is_one(it: Any) -> bool:
        return isinstance(it, (StateSharding, extract.TreeState)) or is_sharding_leaf(it)

    return jax.tree.map(own, shardings, is_leaf=is_one)


def refuse_unlike(prefix: Any, values: dict[str, Any]) -> None:
    """Raises where one Variable is in two places of the arguments, given by name, that have two shardings."""
    met: dict[int, tuple[str, Any]] = {}
    for own, (name, value) in zip(_prefixes(prefix, len(values)), values.items(), strict=False):
        leaves = jax.tree_util.tree_leaves_with_path(value, is_leaf=is_object)
        owns = extract.broadcast_prefix(own, value, prefix_is_leaf=is_sharding_leaf, tree_is_leaf=is_object)
        for (path, leaf), of_leaf in zip(leaves, owns, strict=True):
            for steps, variable in graphlib.iter_graph(leaf, graph=True) if is_object(leaf) else ():
                if not isinstance(variable, Variable):
                    continue
                sharding = of_leaf.sharding(steps, variable) if isinstance(of_leaf, _ByPath) else of_leaf
                place = name + jax.tree_util.keystr(path) + "".join(map(_step, steps))
                first, known = met.setdefault(id(variable), (place, sharding))
                if known != sharding:
                    raise ValueError(
                        f"Inconsistent aliasing: `{first}` and `{place}` are one {type(variable).__name__}, found "
                        f"{known} and {sharding} for them in in_shardings, expected the same for both"
                    )


def _step(part: Any) -> str:
    return f".{part}" if isinstance(part, str) else f"[{part!r}]"


def _prefixes(prefix: Any, count: int) -> tuple[Any, ...]:
    if not isinstance(prefix, tuple) or is_sharding_leaf(prefix):
        return (prefix,) * count
    return tuple([None if isinstance(part, NoEntry) else part for part in prefix])


def shardings_by_leaf(prefix: Any, values: tuple[Any, ...]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for own, value in zip(_prefixes(prefix, len(values)), values, strict=False):
        pairs = _core.broadcast_prefix(prefix_for(own, value), value, is_sharding_leaf, "", "")
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
