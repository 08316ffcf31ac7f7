"""All that a static key tells apart, in order, each with its path."""

from collections.abc import Iterator
from typing import Any

from partax._tree.spec_data import SpecData, walk

ARRAY, VALUE, RUN, NODE = range(4)
Detail = tuple[str, int, Any]
"""What a static key tells apart: (path, ARRAY, None), (path, VALUE, the static value), (path of a sequence, RUN, (index
of the first, static values)) for many static leaves in a row, (path, NODE, (kind, type, number of children, or the keys
of an OrderedDict))."""

_LONG_RUN = 16


def details(data: SpecData) -> Iterator[Detail]:
    """All that a static key tells apart, in order."""
    statics = data[1]

    def value(index: int) -> Any:
        held = statics[index]
        return held[0] if held else None

    for level, index, _, node in walk(data):
        if node is None:
            for i, name in enumerate(level.node.fields, level.node.first):
                if statics[i] != ():
                    yield f"{level.path}.{name}", VALUE, value(i)
        elif node.kind == "dynamic_leaf" and node.arity == 0:
            yield level.child(statics, index), ARRAY, None
        elif node.kind == "dynamic_leaf":
            yield from ((level.child(statics, index + i), ARRAY, None) for i in range(node.size))
        elif node.kind == "static_leaf" and node.size >= _LONG_RUN and level.node.kind in ("tuple", "list"):
            values = tuple(value(node.first + i) for i in range(node.size))
            yield level.path, RUN, (index, values)
        elif node.kind == "static_leaf":
            yield from ((level.child(statics, index + i), VALUE, value(node.first + i)) for i in range(node.size))
        else:
            path = level.child(statics, index)
            if node.kind == "static":
                yield path, VALUE, value(node.first)
                continue
            ordered = node.kind == "ordered_dict"
            keys = tuple(value(node.first_key + i) for i in range(node.arity)) if ordered else node.arity
            yield path, NODE, (node.kind, node.cls, keys)
            if node.kind == "default_dict":
                yield f"{path}.default_factory", VALUE, value(node.first)
            elif node.kind == "registered":
                yield f"{path}.<aux data>", VALUE, value(node.first)
