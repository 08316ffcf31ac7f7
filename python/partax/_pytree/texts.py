"""The text of a tree, and messages for trees that are not alike."""

from collections.abc import Iterator
from typing import Any

from partax._guards.user_objects import read
from partax._pytree.paths import static_path
from partax._pytree.short_text import LONGEST, name_text, one_line, short_text
from partax._pytree.spec_data import DICTS, Node, SpecData, alike, shown

_LONGEST_VALUE = 200  # in a message
_LONGEST_NAME = 40  # of a class or of a function in the text of a tree


def tree_text(data: SpecData) -> str:
    """The tree as Python would print it, with `*` for array leaves, in one line: of a large one, the outer parts.

    Runs the `repr` of the static values that are shown.
    """
    return _TreeText(data).fitting(LONGEST - len("Structure()"))


class _TreeText:
    """The text of a tree, whose nodes are opened from the root down."""

    def __init__(self, data: SpecData) -> None:
        self._statics = data[1]
        self._values: dict[int, str] = {}
        self._nodes = [node for fields in data[0] if (node := Node(*fields)).kind != "end"]
        self._below: list[list[int]] = [[] for _ in self._nodes]  # the children of each; a run of leaves is one
        unfinished: list[tuple[int, int]] = []  # nodes, and how many of their children are still to come
        for i, node in enumerate(self._nodes):
            if unfinished:
                parent, left = unfinished.pop()
                self._below[parent].append(i)
                if left > node.size:
                    unfinished.append((parent, left - node.size))
            if not node.is_leaf and node.arity > 0:
                unfinished.append((i, node.arity))
        self._sizes = [1] * len(self._nodes)  # how many nodes each has below it and is
        for i in reversed(range(len(self._nodes))):
            self._sizes[i] += sum(self._sizes[below] for below in self._below[i])

    def fitting(self, longest: int) -> str:
        """The text with as many nodes opened, the outer ones first, as fit."""
        if self._nodes[0].is_leaf:  # what a `Static` holds has all the room
            held = self._statics[0] if self._nodes[0].kind == "static_leaf" else ()
            return "<dropped>" if held is None else short_text(held[0], longest) if held else "*"
        return one_line(self._opened(0, longest), longest)

    def _opened(self, at: int, room: int) -> str:
        """A node with as many of its parts as fit; closed where none does. Small parts are opened before large ones."""
        start, end = self._brackets(at, is_open=True)
        shown: list[tuple[str, str | int, str]] = []  # what stands before a part, it, and its text
        left = room - len(start) - len(end)
        for label, part in self._parts(at) if self._has_parts(at) else ():
            text = part if isinstance(part, str) else self._closed(part)
            shown.append((f", {label}" if shown else label, part, text))
            left -= len(shown[-1][0]) + len(text)
            if left < 0:
                end = f", ...{end}"
                left -= len(", ...")
                while shown and left < 0:
                    before, _, text = shown.pop()
                    left += len(before) + len(text)
                break
        if not shown:
            return self._closed(at)
        texts = [text for _, _, text in shown]
        nodes = [(self._sizes[part], i, part) for i, (_, part, _) in enumerate(shown) if isinstance(part, int)]
        for _, i, part in sorted(nodes):
            closed, texts[i] = texts[i], self._opened(part, left + len(texts[i]))
            left -= len(texts[i]) - len(closed)
        return start + "".join(before + text for (before, _, _), text in zip(shown, texts, strict=True)) + end

    def _closed(self, at: int) -> str:
        """A node without its parts."""
        node = self._nodes[at]
        if node.kind == "none":
            return "None"
        if node.kind == "static":
            return self._value(node.first)
        has_parts = self._has_parts(at)
        start, end = self._brackets(at, is_open=not has_parts)
        return f"{start}...{end}" if has_parts else f"{start}{end}"

    def _has_parts(self, at: int) -> bool:
        node = self._nodes[at]
        return node.kind not in ("none", "static") and bool(self._below[at] or _own_fields(node))

    def _brackets(self, at: int, is_open: bool) -> tuple[str, str]:
        node = self._nodes[at]
        name = one_line(node.type_name.rpartition(".")[2], _LONGEST_NAME)
        if node.kind == "tuple":
            return "(", ",)" if node.arity == 1 and is_open else ")"
        if node.kind == "list":
            return "[", "]"
        if node.kind == "dict":
            return "{", "}"
        if node.kind in DICTS and is_open:
            factory = f"{self._value(node.first)}, " if node.kind == "default_dict" else ""
            return f"{name}({factory}{{", "})"
        aux = f"[{self._value(node.first)}]" if node.kind == "registered" and is_open else ""
        return f"{name}{aux}(", ")"

    def _parts(self, at: int) -> Iterator[tuple[str, str | int]]:
        """What is in a node, each with what stands before it."""
        node = self._nodes[at]
        position = 0
        for below in self._below[at]:
            child = self._nodes[below]
            for i in range(child.size):
                part = below
                if child.is_leaf:
                    part = self._value(child.first + i) if child.kind == "static_leaf" else "*"
                label = f"{node.children[position]}=" if position < len(node.children) else ""
                yield f"{self._value(node.first_key + position)}: " if node.kind in DICTS else label, part
                position += 1
        yield from ((f"{field}=", self._value(node.first + i)) for i, field in enumerate(_own_fields(node)))

    def _value(self, index: int) -> str:
        """A static value: a function by its name, another one by its `repr`."""
        known = self._values.get(index)
        if known is None:
            held = self._statics[index]
            known = "<dropped>" if held is None else "<absent>"
            if held:
                name = read(held[0], "__name__") if callable(held[0]) else None
                known = name_text(name, _LONGEST_NAME) if isinstance(name, str) else short_text(held[0])
            self._values[index] = known
        return known


def _own_fields(node: Node) -> list[str]:
    """Without the names of a function that a module wraps, which are no part of its text."""
    return [field for field in node.fields if not field.startswith("__")]


def _node_words(node: Node, statics: tuple[Any, ...], with_size: bool) -> str:
    text = f"a `{node.type_name}`"
    if node.kind == "none":
        return "None"
    if node.kind in DICTS:
        keys = [held[0] for held in statics[node.first_key : node.first_key + node.arity] if held]
        return f"{text} with the keys {shown(keys, 'a `{}`', _LONGEST_VALUE)}"
    if not with_size:
        return text
    wrapper = " whose attributes are not just its fields" if "__name__" in node.fields else ""
    return f"{text} with {node.arity} {'child' if node.arity == 1 else 'children'}{wrapper}"


def unlike_nodes(expected: SpecData, found: SpecData | None, type_name: str, what: str) -> str:
    """The message for a node, None if it is a leaf, that is not like the one of `what` beside it."""
    node = Node(*expected[0][0])
    is_array = type_name.endswith(("Tracer", "ArrayImpl", "numpy.ndarray"))
    text = "an array" if is_array else f"a `{type_name}`"
    if found is not None:
        other = Node(*found[0][0])
        text = _node_words(other, found[1], other.cls is node.cls)
    wanted = _node_words(node, expected[1], True)
    return f"found {text}, expected the structure of {what}, which has {wanted} here; make both alike"


def unequal_statics(expected: SpecData, found: SpecData, index: int, what: str) -> tuple[str, str]:
    """The path below the tree and the message for a static value that is not equal to the one of `what` beside it."""
    for fields, others, path in zip(found[0], expected[0], found[2], strict=True):
        node, other = Node(*fields), Node(*others)
        if node.kind in DICTS and 0 <= index - node.first_key < node.arity:
            texts = [_node_words(node, found[1], True), _node_words(other, expected[1], True)]
            return path, f"found {texts[0]}, expected {texts[1]}, as {what} has here; make both alike"
    held = (data[1][index] for data in (found, expected))
    texts = [shown(*it, "a `{}`", _LONGEST_VALUE) if it else "no value" for it in held]
    return static_path(found, index), (
        f"found {texts[0]}, expected {texts[1]}, as {what} has here{alike(*texts)}; static parts of trees side by side "
        "must be equal by `==`"
    )
