"""Trees that are too deep for any stack, and trees that contain themselves."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from trees import Bag, Cell, Pair, Tray, array

DEPTH = 50_000


def nested(wrap: Callable[[Any], Any], depth: int = DEPTH) -> Any:
    tree: Any = array(1)
    for _ in range(depth):
        tree = wrap(tree)
    return tree


class Link(eqx.Module):
    next: Any


WRAPS: dict[str, Callable[[Any], Any]] = {
    "list": lambda t: [t],
    "tuple": lambda t: (t,),
    "dict": lambda t: {"k": t},
    "ordered dict": lambda t: OrderedDict(k=t),
    "defaultdict": lambda t: defaultdict(list, k=t),
    "NamedTuple": lambda t: Pair(t, None),
    "dataclass": lambda t: Cell(t),
    "registered": lambda t: Bag(t),
    "with keys": lambda t: Tray(t, None),
    "partial": lambda t: jax.tree_util.Partial(array, t),
}


def self_containing() -> dict[str, Any]:
    a: list[Any] = [1]
    a.append(a)
    b: dict[str, Any] = {}
    b["b"] = {"again": b}
    c: OrderedDict[str, Any] = OrderedDict()
    c["c"] = c
    d = Bag()
    d.items = (d,)
    e = Cell(1)
    e.weight = [e]
    g: list[Any] = []
    g.append((g, {"g": g}))
    h = Link(None)
    object.__setattr__(h, "next", h)
    return {"list": a, "dict": b, "ordered dict": c, "registered": d, "dataclass": e, "mix": g, "module": h}
