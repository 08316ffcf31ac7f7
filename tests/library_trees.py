"""Objects of the libraries whose classes partax reads, for tests of trees: by name, each of two children and a static
value; without those of libraries that are not installed."""

import dataclasses
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp

from trees import Declared, DeclaredSlots, double

HAS_FLAX = find_spec("flax") is not None

PAIRS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "declared": lambda x, y, aux: Declared(x, y, label=aux),
    "declared slots": lambda x, y, aux: DeclaredSlots(x, y, label=aux),
    "partial": lambda x, y, aux: jax.tree_util.Partial(double, x, aux, k=y),
}

if find_spec("chex") is not None:
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

if find_spec("penzai") is not None:
    from penzai.core import struct as penzai

    @penzai.pytree_dataclass
    class PenzaiPair(penzai.Struct):
        x: Any
        mode: Any = dataclasses.field(metadata={"pytree_node": False})
        y: Any

    PAIRS["penzai"] = lambda x, y, aux: PenzaiPair(x, aux, y)

if HAS_FLAX:
    from flax import nnx, struct
    from flax.core import FrozenDict

    @struct.dataclass
    class FlaxPair:
        x: Any
        y: Any
        mode: Any = struct.field(pytree_node=False)

    class Knot(nnx.Pytree):
        """Two children and a static attribute."""

        def __init__(self, x: Any, y: Any, mode: Any) -> None:
            self.mode = nnx.static(mode)
            self.x = nnx.data(x)
            self.y = nnx.data(y)

    class Marked(nnx.Variable[Any]):
        """A kind of variable."""

        def __repr__(self) -> str:
            return f"Marked({self.get_raw_value()!r})"  # Flax's asks any value for its shape, a class too

    def items(x: Any, y: Any, aux: Any) -> dict[str, Any]:
        return {"b": x, "a": y, **({} if aux is None else {"c": x})}

    PAIRS["flax struct"] = FlaxPair
    PAIRS["knot"] = Knot
    PAIRS["variable"] = lambda x, y, aux: Marked((x, y), mark=aux)
    PAIRS["frozen"] = lambda *arguments: FrozenDict(items(*arguments))
    PAIRS["state"] = lambda *arguments: nnx.State(items(*arguments))
    PAIRS["flat"] = lambda *arguments: nnx.FlatState(
        [((key,), child) for key, child in items(*arguments).items()], sort=False
    )


def samples() -> dict[str, Any]:
    """An object of each library."""
    inner = {name: make(jnp.ones(2), jnp.zeros(1), ("m", 1)) for name, make in PAIRS.items()}
    return inner | {"in another": PAIRS["declared"](*list(inner.values())[-2:], None)}
