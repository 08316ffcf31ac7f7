"""The static part of a tree as plain data from the native stages: its nodes, static values and paths."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jax.tree_util import keystr

from partax._families.objects import attempt
from partax._pytree.short_text import repr_text

SpecData = tuple[tuple[tuple[Any, ...], ...], tuple[tuple[Any] | tuple[()] | None, ...], tuple[Any, ...]]
"""Nodes in pre-order, static values, and the path of each node. A static value is (value,), or () if the field is
absent, or None if the value was deleted. The path of a run of leaves is (the path of its parent, the index of the first
leaf among the children, the segments of the parent's children, empty if they are numbered)."""

DICTS = ("dict", "ordered_dict", "default_dict")


class Node(NamedTuple):
    kind: str  # its family; a leaf of arity n > 0 is n consecutive leaves
    cls: Any  # None for leaves
    type_name: str
    arity: int
    first: int  # the index of its first static value
    children: tuple[str, ...]  # the names of its children, if it has fields
    fields: tuple[str, ...]  # the names of its static fields

    @property
    def first_key(self) -> int:
        return self.first + (self.kind == "default_dict")


NodeNames = tuple[tuple[tuple[Any, ...], ...], tuple[tuple[Any, ...], ...]]
"""The fields of each node; and the keys of each node that has some: of a dict its keys as static values, and of a node
of the kinds `_NAMED_BY_FUNCTIONS` those of JAX."""

_NAMED_BY_FUNCTIONS = ("registered", "declared", "entries")


def spec_data(names: NodeNames, statics: tuple[Any, ...], roots: tuple[str, ...]) -> SpecData:
    """Called by C++ with the name of the tree, or one name for each value of a call."""
    nodes, paths = list[Any](), list[Any]()
    for node, path in walk_paths(names, roots):  # pairs that stayed alive would trigger the collector
        nodes.append(node)
        paths.append(path)
    return tuple(nodes), statics, tuple(paths)


def walk_paths(names: NodeNames, roots: tuple[str, ...], separator: str | None = None) -> Iterator[tuple[Any, Any]]:
    """The fields and the path of each node: as `jax.tree_util.keystr` writes it, or segments joined by a separator."""
    nodes, all_keys = names
    keys = iter(all_keys)
    levels: list[tuple[Any, ...]] = []  # the same four values for each node above the open one
    start, segments, arity, i = "", roots, len(roots) + 1, 0
    for node in nodes:
        kind, _, _, size, _, children, _ = node
        is_leaf = kind == "dynamic_leaf" or kind == "static_leaf"
        if is_leaf and size > 0:
            path: Any = start, i, segments
            i += size
        elif kind == "call":
            path = ""
        else:
            path = start + (segments[i] if i < len(segments) else f"[{i}]" if separator is None else str(i))
            i += 1
        yield node, path
        if not is_leaf:
            below = path + separator if separator is not None and levels else path
            levels.append((start, segments, arity, i))
            if kind != "call":
                has_keys = kind in DICTS or kind in _NAMED_BY_FUNCTIONS
                segments = _segments(kind, size, next(keys, ()) if has_keys else children, separator)
            start, arity, i = below, size, 0
        while i >= arity:
            start, segments, arity, i = levels.pop()


def _segments(kind: str, arity: int, names: tuple[Any, ...], separator: str | None) -> Sequence[str]:
    """The steps to the children of a node; empty if they are numbered."""
    if kind in DICTS:
        if separator is not None:
            return [str(*key) for key in names]
        return [f"[{key[0]!r}]" if key and type(key[0]) is str else _key_text(key) for key in names]
    if kind not in _NAMED_BY_FUNCTIONS:
        return names if separator is not None else [f".{name}" for name in names]
    if separator is not None:
        return [keystr((key,), simple=True) for key in names] + [str(i) for i in range(len(names), arity)]
    texts = attempt(list[str](), lambda: [str(key) for key in names[:arity]])  # keys may be of the user
    return [*texts, *(f"[<flat index {i}>]" for i in range(len(texts), arity))]


def _key_text(key: tuple[Any] | tuple[()] | None) -> str:
    return f"[{repr_text(*key)}]" if key else "[<dropped>]"


def leaf_paths_of(arity: int, path: Any, separator: str | None = None, end: str = "") -> list[str]:
    """The path of each leaf in a run of leaves, followed by `end`; `path` is its entry in the data."""
    if arity == 0:
        return [path + end]
    start, first, segments = path
    last = first + arity
    if last <= len(segments):
        return [start + segment + end for segment in segments[first:last]]
    if separator is None:
        start, end = f"{start}[", f"]{end}"
    return [f"{start}{i}{end}" for i in range(first, last)]


def alike(first: str, second: str) -> str:
    """The addition to a message if two unequal values have the same text."""
    return " (they look alike, but are not equal)" if first == second else ""


ARRAY, VALUE, NODE, FIELD, KEY = range(5)
Detail = tuple[str, int, Any]
"""An item of a static key: (path, ARRAY, None); (path, VALUE, static leaf); (path, FIELD, static value of a node);
(path, NODE, (kind, type, number of children or keys of an OrderedDict)); or (path of a child, KEY, key of a dict)."""


def details(data: SpecData) -> Iterator[Detail]:
    """All items of a static key, in order."""
    nodes, statics, all_paths = data

    def value(index: int) -> Any:
        entry = statics[index]
        return entry[0] if entry else None

    # A first call can have many thousands of nodes, so this reads plain tuples and yields instead of building a list.
    array = None  # the tuple that all single arrays share
    for node, path in zip(nodes, all_paths, strict=True):
        if node is array:
            yield path, ARRAY, None
            continue
        kind, cls, _, arity, first, _, fields = node
        if kind == "dynamic_leaf":
            array = node
            yield path, ARRAY, None
        elif kind == "static_leaf":
            yield from ((leaf, VALUE, value(i)) for i, leaf in enumerate(leaf_paths_of(arity, path), first))
        elif kind == "static":
            yield path, VALUE, value(first)
        elif kind != "call":
            is_ordered = kind == "ordered_dict"
            yield path, NODE, (kind, cls, tuple(map(value, range(first, first + arity))) if is_ordered else arity)
            if kind == "default_dict":
                yield f"{path}.default_factory", FIELD, value(first)
                first += 1
            elif kind == "registered":
                yield f"{path}.<aux data>", FIELD, value(first)
            if kind in DICTS:
                yield from ((path + _key_text(statics[i]), KEY, value(i)) for i in range(first, first + arity))
            for i, name in enumerate(fields, first):
                if statics[i] != ():
                    yield f"{path}.{name}", FIELD, value(i)


def leaf_paths(data: SpecData) -> list[str]:
    nodes, _, paths = data
    return [path for node, path in zip(nodes, paths, strict=True) if node[0] == "dynamic_leaf"]


def leaf_owners(data: SpecData) -> list[int]:
    """For each array leaf of a call, the index of the argument that contains it."""
    owners: list[int] = []
    owner, left = -1, 0  # the remaining nodes and leaves of this argument
    for kind, _, _, arity, *_ in data[0][1:]:
        if left == 0:
            owner, left = owner + 1, 1
        left += -max(arity, 1) if kind in ("dynamic_leaf", "static_leaf") else arity - 1
        if kind == "dynamic_leaf":
            owners.append(owner)
    return owners


def _static_items(data: SpecData) -> Iterator[tuple[str, Any]]:
    return ((path, value) for path, kind, value in details(data) if kind in (VALUE, FIELD, KEY))


def static_path(data: SpecData, index: int) -> str:
    """Called by C++."""
    numbers = tuple((i,) if entry != () else () for i, entry in enumerate(data[1]))
    items = zip(_static_items(data), _static_items((data[0], numbers, data[2])), strict=True)
    return next((path for (path, _), (_, i) in items if i == index), "the arguments")


def static_values(data: SpecData) -> dict[str, Any]:
    return dict(_static_items(data))
