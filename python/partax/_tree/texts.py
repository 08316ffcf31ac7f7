"""The text of a tree, and messages for trees that are not alike."""

from typing import Any

from partax._tree.paths import static_path
from partax._tree.spec_data import DICTS, Node, SpecData, shown


def tree_text(data: SpecData) -> str:
    """The tree as Python would print it, with `*` for array leaves. Runs the `repr` of static values."""
    nodes, statics, _ = data

    def value(index: int) -> str:
        held = statics[index]
        return repr(held[0]) if held else "<dropped>" if held is None else "<absent>"

    texts: list[str] = []  # of the siblings after the node that is next, the nearest last
    for fields in reversed(nodes):
        node = Node(*fields)
        if node.kind == "end":
            continue
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
    if node.kind in DICTS:
        items = ", ".join(f"{value(node.first_key + i)}: {text}" for i, text in enumerate(below))
        factory = f"{value(node.first)}, " if node.kind == "default_dict" else ""
        return f"{{{items}}}" if node.kind == "dict" else f"{name}({factory}{{{items}}})"
    named = [f"{node.children[i]}={text}" if i < len(node.children) else text for i, text in enumerate(below)]
    # The names of a function that a module wraps are no part of its text.
    own = [field for field in node.fields if not field.startswith("__")]
    named += [f"{field}={value(node.first + i)}" for i, field in enumerate(own)]
    return f"{name}({', '.join(named)})"


def _node_words(node: Node, statics: tuple[Any, ...], with_size: bool) -> str:
    text = f"a `{node.type_name}`"
    if node.kind == "none":
        return "None"
    if node.kind in DICTS:
        keys = [held[0] for held in statics[node.first_key : node.first_key + node.arity] if held]
        return f"{text} with the keys {_cut(keys)}"
    if not with_size:
        return text
    wrapper = " whose attributes are not just its fields" if "__name__" in node.fields else ""
    return f"{text} with {node.arity} {'child' if node.arity == 1 else 'children'}{wrapper}"


def _cut(value: Any) -> str:
    text = shown(value, "a `{}`")
    return text if len(text) <= 200 else text[:200] + "..."


def unlike_nodes(expected: SpecData, found: SpecData | None, type_name: str, what: str) -> str:
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
        text = _node_words(other, found[1], other.cls is node.cls)
    wanted = _node_words(node, expected[1], True)
    return f"found {text}, expected the structure of {what}, which has {wanted} here; make both alike"


def unequal_statics(expected: SpecData, found: SpecData, index: int, what: str) -> tuple[str, str]:
    """The path and the message for a static value that is not equal to the one of `what` beside it.

    Args:
      expected: the tree of `what`.
      found: the other tree, alike but for static values.
      index: of the static value.
      what: the name of the tree that decides.

    Returns:
      The path below the tree, and the message.
    """
    for fields, others, path in zip(found[0], expected[0], found[2], strict=True):
        node, other = Node(*fields), Node(*others)
        if node.kind in DICTS and 0 <= index - node.first_key < node.arity:
            texts = [_node_words(node, found[1], True), _node_words(other, expected[1], True)]
            return path, f"found {texts[0]}, expected {texts[1]}, as {what} has here; make both alike"
    texts = [_cut(*held) if (held := data[1][index]) else "no value" for data in (found, expected)]
    alike = " (they look alike, but are not equal)" if texts[0] == texts[1] else ""
    return static_path(found, index), (
        f"found {texts[0]}, expected {texts[1]}, as {what} has here{alike}; static parts of trees side by side must be "
        "equal by `==`"
    )
