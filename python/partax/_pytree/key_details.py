"""All that a static key tells apart, in order, each with its path."""

from collections.abc import Iterator
from typing import Any

from partax._pytree.spec_data import SpecData, leaf_paths_of, node_of

ARRAY, VALUE, RUN, NODE, FIELD = range(5)
Detail = tuple[str, int, Any]
"""What a static key tells apart: (path, ARRAY, None), (path, VALUE, the static value), (path,
FIELD, the static value) of what is no leaf but belongs to a node, (path of a sequence, RUN, (index
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
    array = None  # the one tuple that stands for all single arrays
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
