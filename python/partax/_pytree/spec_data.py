"""The plain data that the native stages give of the static part of a tree."""

from functools import partial
from typing import Any, NamedTuple

SpecData = tuple[tuple[tuple[Any, ...], ...], tuple[tuple[Any] | tuple[()] | None, ...], tuple[Any, ...]]
"""Nodes in pre-order, static values, and the path of each node. A static value is (value,), or () where the field is
absent, or None where it is gone. For a run of leaves, (the path of its parent, which child its first leaf is, the
segments of the parent's children, none where they are numbered) stands in the place of a path."""

DICTS = ("dict", "ordered_dict", "default_dict")


class Node(NamedTuple):
    """One node; one with static fields stands once more after its children, as an "end"."""

    kind: str  # its family; a leaf of arity n > 0 stands for n leaves in a row
    cls: Any  # None for leaves
    type_name: str
    arity: int
    first: int  # the index of its first static value
    children: tuple[str, ...]  # the names of its children, if it has fields
    fields: tuple[str, ...]  # the names of its static fields

    @property
    def is_leaf(self) -> bool:
        return self.kind in ("dynamic_leaf", "static_leaf")

    @property
    def size(self) -> int:
        """How many children of its parent it stands for."""
        return max(self.arity, 1) if self.is_leaf else 1

    @property
    def first_key(self) -> int:
        return self.first + (self.kind == "default_dict")


node_of = partial(tuple.__new__, Node)  # Node._make without its check, for thousands of nodes


def leaf_paths_of(node: Node, path: Any) -> list[str]:
    """The path of each leaf that a node stands for; `path` is what the data has for it."""
    if node.arity == 0:
        return [path]
    parent, first, segments = path
    children = range(first, first + node.arity)
    return [parent + (segments[i] if i < len(segments) else f"[{i}]") for i in children]


class Verbatim(str):
    """A text that is its own `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def alike(first: str, second: str) -> str:
    """What a message says beside the texts of two values that differ."""
    return " (they look alike, but are not equal)" if first == second else ""


def shown(value: Any, otherwise: str = "<{}>", longest: int | None = None) -> str:
    """The repr of a value, cut where it is longer; of one that has none the name of its type."""
    try:
        text = repr(value)
    except MemoryError:
        raise
    except Exception:
        text = otherwise.format(type(value).__name__)
    return text if longest is None or len(text) <= longest else text[:longest] + "..."
