"""The static part of a tree as the native stages give it: plain data, with what it tells apart and the path of each."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

SpecData = tuple[tuple[tuple[Any, ...], ...], tuple[tuple[Any] | tuple[()] | None, ...], tuple[Any, ...]]
"""Nodes in pre-order, static values, and the path of each node. A static value is (value,), or () where the field is
absent, or None where it is gone. For a run of leaves, (the path of its parent, which child its first leaf is, the
segments of the parent's children, none where they are numbered) is given instead of a path."""

DICTS = ("dict", "ordered_dict", "default_dict")


class Node(NamedTuple):
    """One node; one with static fields stands once more after its children, as an "end"."""

    kind: str  # its family; a leaf of arity n > 0 is n leaves in a row
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
        """How many children of its parent it is."""
        return max(self.arity, 1) if self.is_leaf else 1

    @property
    def first_key(self) -> int:
        return self.first + (self.kind == "default_dict")


node_of = partial(tuple.__new__, Node)  # Node._make without its check, for thousands of nodes


def leaf_paths_of(node: Node, path: Any) -> list[str]:
    """The path of each leaf in a node; `path` is what the data has for it."""
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
    """What a message adds to the texts of two values that differ."""
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


ARRAY, VALUE, RUN, NODE, FIELD = range(5)
Detail = tuple[str, int, Any]
"""What a static key tells apart: (path, ARRAY, None), (path, VALUE, the static value), (path,
FIELD, the static value) of what belongs to a node without being a leaf, (path of a sequence, RUN, (index
of the first, static values)) for many static leaves in a row, (path, NODE, (kind, type, number of children, or the keys
of an OrderedDict))."""

_LONG_RUN = 16


def details(data: SpecData) -> Iterator[Detail]:
    """All that a static key tells apart, in order."""
    nodes, statics, all_paths = data

    def value(index: int) -> Any:
        held = statics[index]
        return held[0] if held else None

    # There may be many thousands of nodes in a first call: they are read as the plain tuples that they are, and what
    # they tell is not kept.
    array = None  # the one tuple of all single arrays
    for node, path in zip(nodes, all_paths, strict=True):
        if node is array:
            yield path, ARRAY, None
            continue
        kind, cls, _, arity, first, _, fields = node
        if kind == "dynamic_leaf":
            array = node
            yield path, ARRAY, None
        elif kind == "end":
            for i, name in enumerate(fields, first):
                if statics[i] != ():
                    yield f"{path}.{name}", FIELD, value(i)
        elif kind == "static_leaf":
            if arity < _LONG_RUN or path[2]:
                paths = leaf_paths_of(node_of(node), path)
                yield from ((of_leaf, VALUE, value(i)) for i, of_leaf in enumerate(paths, first))
            else:
                yield path[0], RUN, (path[1], tuple(map(value, range(first, first + arity))))
        elif kind == "static":
            yield path, VALUE, value(first)
        elif kind == "ordered_dict":
            yield path, NODE, (kind, cls, tuple(map(value, range(first, first + arity))))
        elif kind != "call":
            yield path, NODE, (kind, cls, arity)
            if kind == "default_dict":
                yield f"{path}.default_factory", FIELD, value(first)
            elif kind == "registered":
                yield f"{path}.<aux data>", FIELD, value(first)


def leaf_paths(data: SpecData) -> list[str]:
    """The path of each array leaf."""
    nodes, _, paths = data
    return [path for node, path in zip(nodes, paths, strict=True) if node[0] == "dynamic_leaf"]


def leaf_owners(data: SpecData) -> list[int]:
    """For each array leaf of a call, the index of the value that it is in."""
    owners: list[int] = []
    owner = -1
    left = 0  # nodes and leaves that are still to come in this value
    for node in map(node_of, data[0][1:]):
        if node.kind == "end":
            continue
        if left == 0:
            owner, left = owner + 1, 1
        left += -node.size if node.is_leaf else node.arity - 1
        if node.kind == "dynamic_leaf":
            owners.append(owner)
    return owners


def _statics(data: SpecData) -> Iterator[tuple[str, int]]:
    """The path and the index of each static value that is there; keys have the path of their child."""
    nodes, statics, paths = data
    for node, path in zip(map(node_of, nodes), paths, strict=True):
        if node.kind == "end":
            yield from ((f"{path}.{name}", i) for i, name in enumerate(node.fields, node.first) if statics[i] != ())
        elif node.kind == "static_leaf":
            yield from zip(leaf_paths_of(node, path), range(node.first, node.first + node.size), strict=True)
        elif node.kind == "static":
            yield path, node.first
        elif node.kind == "registered":
            yield f"{path}.<aux data>", node.first
        elif node.kind in DICTS:
            if node.kind == "default_dict":
                yield f"{path}.default_factory", node.first
            for i in range(node.first_key, node.first_key + node.arity):
                key = statics[i]
                yield f"{path}[{shown(*key) if key else '<dropped>'}]", i


def static_path(data: SpecData, index: int) -> str:
    """The path of one static value."""
    return next((path for path, i in _statics(data) if i == index), "the arguments")


def static_values(data: SpecData) -> dict[str, Any]:
    """Each static value by its path."""
    return {path: value[0] if (value := data[1][i]) else None for path, i in _statics(data)}
