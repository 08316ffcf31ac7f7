"""The path of each leaf, and of each static value, as users read them: `model.layers[0].weight`."""

from collections.abc import Iterator
from typing import Any

from partax._tree.spec_data import DICTS, SpecData, segment, walk


def leaf_paths(data: SpecData) -> list[str]:
    """The path of each array leaf."""
    return [
        level.child(data[1], index + i)
        for level, index, _, node in walk(data)
        if node is not None and node.kind == "dynamic_leaf"
        for i in range(node.size)
    ]


def leaf_owners(data: SpecData) -> list[int]:
    """For each array leaf of a call, the index of the value that it is in."""
    return [root for _, _, root, node in walk(data) if node is not None and node.kind == "dynamic_leaf"]


def _statics(data: SpecData) -> Iterator[tuple[str, int]]:
    """The path and the index of each static value that is there; keys have the path of their child."""
    for level, index, _, node in walk(data):
        if node is None:
            fields = enumerate(level.node.fields, level.node.first)
            yield from ((f"{level.path}.{name}", i) for i, name in fields if data[1][i] != ())
            continue
        if node.kind == "static_leaf":
            yield from ((level.child(data[1], index + i), node.first + i) for i in range(node.size))
            continue
        path = level.child(data[1], index)
        if node.kind == "static":
            yield path, node.first
        elif node.kind == "registered":
            yield f"{path}.<aux data>", node.first
        elif node.kind in DICTS:
            if node.kind == "default_dict":
                yield f"{path}.default_factory", node.first
            yield from ((path + segment(node, data[1], i), node.first_key + i) for i in range(node.arity))


def static_path(data: SpecData, index: int) -> str:
    """The path of one static value."""
    return next((path for path, i in _statics(data) if i == index), "the arguments")


def static_values(data: SpecData) -> dict[str, Any]:
    """Each static value by its path."""
    return {path: value[0] if (value := data[1][i]) else None for path, i in _statics(data)}
