"""Paths and texts of the static part of a tree, from the plain data that the native stages give of it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

Data = tuple[tuple[tuple[Any, ...], ...], tuple[tuple[Any] | tuple[()] | None, ...], tuple[str, ...]]
"""Nodes in pre-order, static values, and the names of the roots. A static value is (value,), or () where the field is
absent, or None where it is gone."""

ARRAY, VALUE, RUN, NODE = range(4)
Detail = tuple[str, int, Any]
"""What a static key tells apart: (path, ARRAY, None), (path, VALUE, the static value), (path of a sequence, RUN, (index
of the first, static values)) for many static leaves in a row, (path, NODE, (kind, type, number of children, or the keys
of an OrderedDict))."""

_LONG_RUN = 16
_LEAVES = ("dynamic_leaf", "static_leaf")
_DICTS = ("dict", "ordered_dict", "default_dict")


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


def _shown(value: Any, otherwise: str = "<{}>") -> str:
    """The repr of a value; of one that has none the name of its type."""
    try:
        return repr(value)
    except MemoryError:
        raise
    except Exception:
        return otherwise.format(type(value).__name__)


def _segment(node: Node, statics: tuple[Any, ...], i: int) -> str:
    """The step to a child."""
    if node.kind in _DICTS:
        key = statics[node.first_key + i]
        return f"[{_shown(*key)}]" if key else "[<dropped>]"
    if i < len(node.children):
        return node.children[i] if node.kind == "registered" else f".{node.children[i]}"
    return f"[<flat index {i}>]" if node.kind == "registered" else f"[{i}]"


class _Level:
    """The children of a node, of which `at` is the next one."""

    def __init__(self, path: str, node: Node, roots: tuple[str, ...] | None = None):
        self.path = path
        self.node = node
        self.at = 0
        self._roots = roots

    def child(self, statics: tuple[Any, ...], i: int) -> str:
        if self._roots is None:
            return self.path + _segment(self.node, statics, i)
        return self._roots[i] if i < len(self._roots) else f"arguments[{i}]"


class Place(NamedTuple):
    """Where a walk is: at a child of `level`, whose root has a number; or at the end of what is below `level`."""

    level: _Level
    at: int
    root: int
    node: Node | None


def _walk(data: Data) -> Iterator[Place]:
    """Visits the nodes in pre-order, and each node that is no leaf once more at its end."""
    nodes, _, roots = data
    levels = [_Level("", Node("call", None, "", 1, 0, (), ()), roots)]
    for fields in nodes:
        node = Node(*fields)
        if node.kind == "call":
            levels = [_Level("", node, roots)]
            continue
        level = levels[-1]
        place = Place(level, level.at, levels[0].at - (len(levels) > 1), node)
        level.at += node.size
        yield place
        if not node.is_leaf:
            levels.append(_Level(level.child(data[1], place.at), node))
        while len(levels) > 1 and levels[-1].at >= levels[-1].node.arity:
            yield Place(levels.pop(), 0, 0, None)


def leaf_paths(data: Data) -> list[str]:
    """The path of each array leaf."""
    return [
        level.child(data[1], index + i)
        for level, index, _, node in _walk(data)
        if node is not None and node.kind == "dynamic_leaf"
        for i in range(node.size)
    ]


def leaf_owners(data: Data) -> list[int]:
    """For each array leaf of a call, the index of the value that it is in."""
    return [place.root for place in _walk(data) if place.node is not None and place.node.kind == "dynamic_leaf"]


def _statics(data: Data) -> Iterator[tuple[str, int]]:
    """The path and the index of each static value that is there; keys have the path of their child."""
    for level, index, _, node in _walk(data):
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
        elif node.kind in _DICTS:
            if node.kind == "default_dict":
                yield f"{path}.default_factory", node.first
            yield from ((path + _segment(node, data[1], i), node.first_key + i) for i in range(node.arity))


def static_path(data: Data, index: int) -> str:
    """The path of one static value."""
    return next((path for path, i in _statics(data) if i == index), "the arguments")


def static_values(data: Data) -> dict[str, Any]:
    """Each static value by its path."""
    return {path: value[0] if (value := data[1][i]) else None for path, i in _statics(data)}


def details(data: Data) -> Iterator[Detail]:
    """All that a static key tells apart, in order."""
    statics = data[1]

    def value(index: int) -> Any:
        held = statics[index]
        return held[0] if held else None

    for level, index, _, node in _walk(data):
        if node is None:
            fields = enumerate(level.node.fields, level.node.first)
            yield from ((f"{level.path}.{name}", VALUE, value(i)) for i, name in fields if statics[i] != ())
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


def tree_text(data: Data) -> str:
    """The tree as Python would print it, with `*` for array leaves. Runs the `repr` of static values."""
    nodes, statics, _ = data

    def value(index: int) -> str:
        held = statics[index]
        return repr(held[0]) if held else "<dropped>" if held is None else "<absent>"

    texts: list[str] = []  # of the siblings after the node that is next, the nearest last
    for fields in reversed(nodes):
        node = Node(*fields)
        if node.is_leaf:
            leaves = [value(node.first + i) if node.kind == "static_leaf" else "*" for i in range(node.size)]
            texts += reversed(leaves)
            continue
        below = [texts.pop() for _ in range(node.arity)]
        texts.append(_node_text(node, below, value))
    return ", ".join(reversed(texts))


def _node_text(node: Node, below: list[str], value: Any) -> str:
    inner = ", ".join(below)
    name = node.type_name.rpartition(".")[2]
    if node.kind == "none":
        return "None"
    if node.kind == "static":
        return value(node.first)
    if node.kind == "tuple":
        return f"({inner},)" if node.arity == 1 else f"({inner})"
    if node.kind == "list":
        return f"[{inner}]"
    if node.kind == "registered":
        return f"{name}[{value(node.first)}]({inner})"
    if node.kind in _DICTS:
        items = ", ".join(f"{value(node.first_key + i)}: {text}" for i, text in enumerate(below))
        factory = f"{value(node.first)}, " if node.kind == "default_dict" else ""
        return f"{{{items}}}" if node.kind == "dict" else f"{name}({factory}{{{items}}})"
    named = [f"{node.children[i]}={text}" if i < len(node.children) else text for i, text in enumerate(below)]
    # The names of a function that a module wraps are no part of its text.
    own = [field for field in node.fields if not field.startswith("__")]
    named += [f"{field}={value(node.first + i)}" for i, field in enumerate(own)]
    return f"{name}({', '.join(named)})"


# ---- Trees side by side.


def _described(node: Node, statics: tuple[Any, ...], with_size: bool) -> str:
    text = f"a `{node.type_name}`"
    if node.kind == "none":
        return "None"
    if node.kind in _DICTS:
        keys = [held[0] for held in statics[node.first_key : node.first_key + node.arity] if held]
        return f"{text} with the keys {_cut(keys)}"
    if not with_size:
        return text
    wrapper = " whose attributes are not just its fields" if "__name__" in node.fields else ""
    return f"{text} with {node.arity} {'child' if node.arity == 1 else 'children'}{wrapper}"


def _cut(value: Any) -> str:
    text = _shown(value, "a `{}`")
    return text if len(text) <= 200 else text[:200] + "..."


def unlike_nodes(expected: Data, found: Data | None, type_name: str, what: str) -> str:
    """The message for a node that is not like the one of `what` beside it.

    Args:
      expected: the node of `what`, opened by one level.
      found: the other node, or None if it is a leaf.
      type_name: of its type.
      what: the name of the tree that decides.

    Returns:
      The message.
    """
    node = Node(*expected[0][0])
    text = f"a `{type_name}`"
    if found is not None:
        other = Node(*found[0][0])
        text = _described(other, found[1], other.cls is node.cls)
    wanted = _described(node, expected[1], True)
    return f"found {text}, expected the structure of {what}, which has {wanted} here; make both alike"


def unequal_statics(expected: Data, found: Data, index: int, what: str) -> tuple[str, str]:
    """The path and the message for a static value that is not equal to the one of `what` beside it.

    Args:
      expected: the tree of `what`.
      found: the other tree, alike but for static values.
      index: of the static value.
      what: the name of the tree that decides.

    Returns:
      The path below the tree, and the message.
    """
    for place, other in zip(_walk(found), _walk(expected), strict=True):
        node = place.node
        if node is None or node.kind not in _DICTS or not 0 <= index - node.first_key < node.arity:
            continue
        assert other.node is not None  # the trees are alike
        texts = [_described(node, found[1], True), _described(other.node, expected[1], True)]
        path = place.level.child(found[1], place.at)
        return path, f"found {texts[0]}, expected {texts[1]}, as {what} has here; make both alike"
    texts = [_cut(*held) if (held := data[1][index]) else "no value" for data in (found, expected)]
    alike = " (they look alike, but are not equal)" if texts[0] == texts[1] else ""
    return static_path(found, index), (
        f"found {texts[0]}, expected {texts[1]}, as {what} has here{alike}; static parts of trees side by side must be "
        "equal by `==`"
    )
