"""The plain data that the native stages give of the static part of a tree, and a walk over its nodes."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

SpecData = tuple[tuple[tuple[Any, ...], ...], tuple[tuple[Any] | tuple[()] | None, ...], tuple[str, ...]]
"""Nodes in pre-order, static values, and the names of the roots. A static value is (value,), or () where the field is
absent, or None where it is gone."""

_LEAVES = ("dynamic_leaf", "static_leaf")
_WITH_FIELDS = ("module", "dataclass", "named_tuple")
DICTS = ("dict", "ordered_dict", "default_dict")


class Node(NamedTuple):
    """One node.

    Attributes:
      kind: its family; a leaf of arity n > 0 stands for n leaves in a row.
      cls: its type; None for leaves.
      type_name: what messages call the type.
      arity: how many children it has.
      first: the index of its first static value.
      children: the names of its children, or (of a registered node) the segments of their paths, if they are known.
      fields: the names of its static fields.
    """

    kind: str
    cls: Any
    type_name: str
    arity: int
    first: int
    children: tuple[str, ...]
    fields: tuple[str, ...]

    @property
    def is_leaf(self) -> bool:
        return self.kind in _LEAVES

    @property
    def size(self) -> int:
        """How many children of its parent it stands for."""
        return max(self.arity, 1) if self.is_leaf else 1

    @property
    def first_key(self) -> int:
        return self.first + (self.kind == "default_dict")


_named = partial(tuple.__new__, Node)  # Node._make without its check, for thousands of nodes


def shown(value: Any, otherwise: str = "<{}>") -> str:
    """The repr of a value; of one that has none the name of its type."""
    try:
        return repr(value)
    except MemoryError:
        raise
    except Exception:
        return otherwise.format(type(value).__name__)


def segment(node: Node, statics: tuple[Any, ...], i: int) -> str:
    """The step to a child."""
    if node.kind in DICTS:
        key = statics[node.first_key + i]
        return f"[{shown(*key)}]" if key else "[<dropped>]"
    if i < len(node.children):
        return node.children[i] if node.kind == "registered" else f".{node.children[i]}"
    return f"[<flat index {i}>]" if node.kind == "registered" else f"[{i}]"


class _Level:
    """The children of a node, of which `at` is the next one."""

    __slots__ = ("_fields", "_latest", "_roots", "at", "node", "path")

    def __init__(self, path: str, node: Node, roots: tuple[str, ...] | None = None):
        self.path = path
        self.node = node
        self.at = 0
        self._roots = roots
        self._fields = node.children if node.kind in _WITH_FIELDS else ()
        self._latest: tuple[int, str] = (-1, "")

    def child(self, statics: tuple[Any, ...], i: int) -> str:
        if i < len(self._fields):
            return f"{self.path}.{self._fields[i]}"
        if self._latest[0] != i:  # asked for when a child is met, and again for what is below it
            self._latest = (i, self._made(statics, i))
        return self._latest[1]

    def _made(self, statics: tuple[Any, ...], i: int) -> str:
        if self._roots is None:
            return self.path + segment(self.node, statics, i)
        return self._roots[i] if i < len(self._roots) else f"arguments[{i}]"


Place = tuple[_Level, int, int, Node | None]
"""Where a walk is: (level, the child of it, the number of its root, the child's node); or at the end of what is below a
level, without a node. A plain tuple, as a first call makes one for each node of a model."""


def walk(data: SpecData) -> Iterator[Place]:
    """Visits the nodes in pre-order, and each node that is no leaf once more at its end."""
    nodes, statics, roots = data
    level = _Level("", Node("call", None, "", 1, 0, (), ()), roots)
    levels = [level]
    for node in map(_named, nodes):
        kind = node.kind
        if kind == "call":
            level = _Level("", node, roots)
            levels = [level]
            continue
        at = level.at
        root = levels[0].at - (len(levels) > 1)
        if kind in _LEAVES:
            level.at = at + (node.arity or 1)
            yield level, at, root, node
        else:
            level.at = at + 1
            yield level, at, root, node
            level = _Level(level.child(statics, at), node)
            levels.append(level)
        while level.at >= level.node.arity and len(levels) > 1:
            yield levels.pop(), 0, 0, None
            level = levels[-1]
