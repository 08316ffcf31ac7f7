"""Objects of Flax for tests of trees, where Flax is installed (it is not for every Python that partax supports)."""

from __future__ import annotations

import importlib.util
from typing import Any

import jax.numpy as jnp

HAS_FLAX = importlib.util.find_spec("flax") is not None

if HAS_FLAX:
    from flax import nnx
    from flax.core import FrozenDict

    class Knot(nnx.Pytree):
        """Two children and a static attribute."""

        x: Any
        y: Any
        mode: Any

        def __init__(self, x: Any, y: Any, mode: Any) -> None:
            self.mode = nnx.static(mode)
            self.x = nnx.data(x)
            self.y = nnx.data(y)

    class Marked(nnx.Variable[Any]):
        """A kind of variable."""

        def __repr__(self) -> str:
            return f"Marked({self.get_raw_value()!r})"  # Flax's asks any value for its shape, a class too

    FIXED = {
        "knot": lambda children, aux: Knot(*children, mode=aux),
        "variable": lambda children, aux: Marked(children[0], mark=aux),
    }
    KEYED = {
        "frozen": lambda items: FrozenDict(dict(items)),
        "state": lambda items: nnx.State(dict(items)),
        "flat": lambda items: nnx.FlatState([((key,), child) for key, child in items], sort=False),
    }
else:
    FIXED, KEYED = {}, {}


def samples() -> dict[str, Any]:
    """An object of each family; none where Flax is not here."""
    inner: dict[str, Any] = {name: make([jnp.ones(2), jnp.zeros(1)], ("m", 1)) for name, make in FIXED.items()}
    return inner | {name: make([("b", inner["knot"]), ("a", jnp.ones(1))]) for name, make in KEYED.items()}


SIZES = {"knot": 2, "variable": 1}
