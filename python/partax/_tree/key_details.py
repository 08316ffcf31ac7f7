"""All that a static key tells apart, in order, each with its path."""

from collections.abc import Iterator
from typing import Any

from partax._tree.spec_data import SpecData, leaf_paths_of, node_of

ARRAY, VALUE, RUN, NODE, FIELD = range(5)
Detail = tuple[str, int, Any]
"""What a static key tells apart: (path, ARRAY, None), (path, VALUE, the static value), (path,
FIELD, the static value) of what is no leaf but belongs to a node, (path of a sequence, RUN, (index
of the first, static values)) for many static leaves in a row, (path, NODE, (kind, type, number of children, or the keys
of an OrderedDict))."""

_LONG_RUN = 16


def details(data: SpecData) -> Iterator[Detail]:
    """All that a static key tells apart, in order."""
    statics = data[1]

    def value(index: int) -> Any:
        held = statics[index]
        return held[0] if held else None

    for node, path in zip(map(node_of, data[0]), data[2], strict=True):
        kind = node.kind
        if kind == "dynamic_leaf":
            yield path, ARRAY, None
        elif kind == "end":
            for i, name in enumerate(node.fields, node.first):
                if statics[i] != ():
                    yield f"{path}.{name}", FIELD, value(i)
        elif kind == "static_leaf":
            if node.arity < _LONG_RUN or path[2]:
                paths = leaf_paths_of(node, path)
                yield from ((of_leaf, VALUE, value(i)) for i, of_leaf in enumerate(paths, node.first))
            else:
                yield path[0], RUN, (path[1], tuple(map(value, range(node.first, node.first + node.arity))))
        elif kind == "static":
            yield path, VALUE, value(node.first)
        elif kind != "call":
            ordered = kind == "ordered_dict"
            keys = tuple(value(node.first_key + i) for i in range(node.arity)) if ordered else node.arity
            yield path, NODE, (kind, node.cls, keys)
            if kind == "default_dict":
                yield f"{path}.default_factory", FIELD, value(node.first)
            elif kind == "registered":
                yield f"{path}.<aux data>", FIELD, value(node.first)
