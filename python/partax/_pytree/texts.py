"""The `repr` of trees, and error messages for trees that differ. Called by the native functions of trees."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

from partax._functions.objects import attribute_of
from partax._pytree.short_text import LONGEST, Opened, name_text, one_line, short_text
from partax._pytree.spec_data import DICTS, Node, SpecData, Verbatim, alike, repr_text, static_path

_LONGEST_VALUE = 200  # in a message
_LONGEST_NAME = 40  # of a class or of a function in the text of a tree


def tree_text(data: SpecData) -> str:
    """The tree in one line as Python would print it, with `*` for array leaves; only the outer parts of a large tree.
    Runs the `repr` of the static values that it contains.
    """
    longest = LONGEST - len("FlatSpec()")
    entry = data[1][0] if data[0][0][0] == "static_leaf" else ()  # the value of a `Static`
    root = entry[0] if entry else _opened(data)
    if not isinstance(root, Opened):
        return short_text(root, longest)
    start, items, end = root
    parts = list(itertools.islice(items(), longest))
    for room in (longest, longest // 2, longest // 3, longest // 4):  # the maximum length of each outer part
        text = start + ", ".join(label + short_text(part, room) for label, part in parts) + end
        if len(text) <= longest:
            return one_line(text, longest)
    return short_text(root, longest)


def _opened(data: SpecData) -> Any:
    """A tree of `Opened` nodes, which compute their items when they are written."""
    nodes = [node for fields in data[0] if (node := Node(*fields)).kind != "end"]
    below: list[list[int]] = [[] for _ in nodes]  # the children of each node; a run of leaves is one entry
    unfinished: list[tuple[int, int]] = []  # nodes, each with the number of its remaining children
    for i, node in enumerate(nodes):
        if unfinished:
            parent, left = unfinished.pop()
            below[parent].append(i)
            if left > node.size:
                unfinished.append((parent, left - node.size))
        if not node.is_leaf and node.arity > 0:
            unfinished.append((i, node.arity))

    def value(index: int) -> Any:
        """A static value, or the name of a function."""
        entry = data[1][index]
        if not entry:
            return Verbatim("<dropped>" if entry is None else "<absent>")
        name = attribute_of(entry[0], "__name__") if callable(entry[0]) else None
        return Verbatim(name_text(name, _LONGEST_NAME)) if isinstance(name, str) else entry[0]

    def items(at: int) -> Iterator[tuple[str, Any]]:
        """The children and static fields of a node, each after its label."""
        node, position = nodes[at], 0
        for i in below[at]:
            for k in range(nodes[i].size):
                label = f"{node.children[position]}=" if position < len(node.children) else ""
                key = f"{short_text(value(node.first_key + position))}: " if node.kind in DICTS else label
                yield key, opened(i, k)
                position += 1
        yield from ((f"{field}=", value(node.first + i)) for i, field in enumerate(_own_fields(node)))

    def opened(at: int, place: int = 0) -> Any:
        node = nodes[at]
        if node.is_leaf:
            return value(node.first + place) if node.kind == "static_leaf" else Verbatim("*")
        if node.kind in ("none", "static"):
            return None if node.kind == "none" else value(node.first)
        name = one_line(node.type_name.rpartition(".")[2], _LONGEST_NAME)
        has_parts = below[at] or _own_fields(node)
        start, end = {"tuple": ("(", ",)" if node.arity == 1 else ")"), "list": "[]", "dict": "{}"}.get(
            node.kind, (f"{name}(", ")")
        )
        if node.kind in DICTS[1:] and has_parts:
            factory = f"{short_text(value(node.first))}, " if node.kind == "default_dict" else ""
            start, end = f"{start}{factory}{{", "})"
        elif node.kind == "registered" and has_parts:
            start = f"{name}[{short_text(value(node.first))}]("
        return Opened(start, functools.partial(items, at), end)

    return opened(0)


def _own_fields(node: Node) -> list[str]:
    """The static fields without the `__name__` and similar attributes that a module copies from a function."""
    return [field for field in node.fields if not field.startswith("__")]


def _node_words(node: Node, statics: tuple[Any, ...], with_size: bool) -> str:
    text = f"a `{node.type_name}`"
    if node.kind == "none":
        return "None"
    if node.kind in DICTS:
        keys = [entry[0] for entry in statics[node.first_key : node.first_key + node.arity] if entry]
        return f"{text} with the keys {repr_text(keys, 'a `{}`', _LONGEST_VALUE)}"
    if not with_size:
        return text
    wrapper = " whose attributes are not just its fields" if "__name__" in node.fields else ""
    return f"{text} with {node.arity} {'child' if node.arity == 1 else 'children'}{wrapper}"


def unlike_nodes(expected: SpecData, actual: SpecData | None, type_name: str, what: str) -> str:
    """The message for a node that differs from the node of `what` at the same path; `actual` is None for a leaf."""
    node = Node(*expected[0][0])
    is_array = type_name.endswith(("Tracer", "ArrayImpl", "numpy.ndarray"))
    text = "an array" if is_array else f"a `{type_name}`"
    if actual is not None:
        actual_node = Node(*actual[0][0])
        text = _node_words(actual_node, actual[1], actual_node.cls is node.cls)
    wanted = _node_words(node, expected[1], True)
    return f"found {text}, expected the structure of {what}, which has {wanted} here; make both alike"


def unequal_statics(expected: SpecData, actual: SpecData, index: int, what: str) -> tuple[str, str]:
    """The path below the tree and the message for a static value that differs from that of `what` at the same path."""
    for actual_fields, expected_fields, path in zip(actual[0], expected[0], actual[2], strict=True):
        node, expected_node = Node(*actual_fields), Node(*expected_fields)
        if node.kind in DICTS and 0 <= index - node.first_key < node.arity:
            texts = [_node_words(node, actual[1], True), _node_words(expected_node, expected[1], True)]
            return path, f"found {texts[0]}, expected {texts[1]}, as {what} has here; make both alike"
    entries = (data[1][index] for data in (actual, expected))
    texts = [repr_text(*entry, "a `{}`", _LONGEST_VALUE) if entry else "no value" for entry in entries]
    return static_path(actual, index), (
        f"found {texts[0]}, expected {texts[1]}, as {what} has here{alike(*texts)}; static parts of trees side by side "
        "must be equal by `==`"
    )
