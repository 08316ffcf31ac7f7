"""Objects of the libraries whose classes partax reads, for tests of trees: by name, each of two children and a static
value; without those of libraries that are not installed."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from typing import Any

import jax

import flax_trees
from trees import Declared, DeclaredSlots, double

PAIRS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "declared": lambda x, y, aux: Declared(x, y, label=aux),
    "declared slots": lambda x, y, aux: DeclaredSlots(x, y, label=aux),
    "partial": lambda x, y, aux: jax.tree_util.Partial(double, x, aux, k=y),
}

if importlib.util.find_spec("chex") is not None:
    import chex

    @chex.dataclass
    class ChexPair:
        x: Any
        y: Any

    @chex.dataclass(frozen=True, mappable_dataclass=False)
    class ChexFrozen:
        x: Any
        y: Any

    PAIRS["chex"] = lambda x, y, _: ChexPair(x=x, y=y)
    PAIRS["chex frozen"] = lambda x, y, _: ChexFrozen(x=x, y=y)

if importlib.util.find_spec("penzai") is not None:
    from penzai.core import struct as penzai

    @penzai.pytree_dataclass
    class PenzaiPair(penzai.Struct):
        x: Any
        mode: Any = dataclasses.field(metadata={"pytree_node": False})
        y: Any

    PAIRS["penzai"] = lambda x, y, aux: PenzaiPair(x, aux, y)

if flax_trees.HAS_FLAX:
    from flax import struct

    @struct.dataclass
    class FlaxPair:
        x: Any
        y: Any
        mode: Any = struct.field(pytree_node=False)

    PAIRS["flax struct"] = FlaxPair
    PAIRS["knot"] = lambda x, y, aux: flax_trees.FIXED["knot"]([x, y], aux)
    PAIRS["variable"] = lambda x, y, aux: flax_trees.FIXED["variable"]([(x, y)], aux)
    for _name, _make in flax_trees.KEYED.items():
        PAIRS[_name] = lambda x, y, aux, make=_make: make([("b", x), ("a", y), *(() if aux is None else [("c", x)])])


def parts_of(obj: Any) -> dict[str, Any] | list[Any] | None:
    """Where an object of these keeps what may change in place: a dictionary, or a list; None where there is none."""
    for name in ("_var_metadata", "_mapping", "_dict", "_values"):
        found = getattr(type(obj), name, None)
        if hasattr(found, "__get__") and hasattr(type(found), "__set__"):
            return found.__get__(obj)
        if isinstance(found := getattr(obj, "__dict__", {}).get(name), dict):
            return found
    if callable(obj):  # a partial, or a function, which is a static leaf
        return None
    return getattr(obj, "__dict__", None)
