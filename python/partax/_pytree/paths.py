"""The path of each leaf, and of each static value, as users read them: `model.layers[0].weight`."""

from collections.abc import Iterator
from typing import Any

from partax._pytree.spec_data import DICTS, SpecData, leaf_paths_of, node_of, shown


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
