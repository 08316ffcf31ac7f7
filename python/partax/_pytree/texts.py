"""The `repr` of static nodes, and error messages for trees that differ. Called by the native functions of trees."""

from typing import Any

from partax import _core
from partax._families.objects import attempt
from partax._pytree.short_text import LONGEST, short_text
from partax._pytree.spec_data import DICTS, Node, SpecData, alike, static_path

_LONGEST_VALUE = 200  # in a message


class _AnyLeaf:
    def __repr__(self) -> str:
        return "*"


def node_text(node: "_core.FlatSpec | _core.Static[Any]") -> str:
    """`FlatSpec({'weight': *})`, with `*` for each leaf that is in a dictionary, or `Static(value)`."""
    name = type(node).__name__

    def value_text() -> str:
        if isinstance(node, _core.Static):
            value = node.value
        else:
            value = _core.tree_unflatten(node, [_AnyLeaf()] * len(node.paths))
        return short_text(value, LONGEST - len(name) - 2)

    return f"{name}({attempt('...', value_text)})"  # a class may accept no such leaves


def _node_words(node: Node, statics: tuple[Any, ...]) -> str:
    text = f"a `{node.type_name}`"
    if node.kind == "none":
        return "None"
    if node.kind in DICTS:
        keys = [entry[0] for entry in statics[node.first_key : node.first_key + node.arity] if entry]
        return f"{text} with the keys {short_text(keys, _LONGEST_VALUE)}"
    return f"{text} with {node.arity} {'child' if node.arity == 1 else 'children'}"


def difference(
    expected: SpecData, actual: SpecData, places: tuple[int, int, int], type_name: str, what: str
) -> tuple[str, str]:
    """The path of a node and the message for its difference from the node of `what`. `places` are the numbers of both
    nodes, the expected one first, and that of the static value of the node that differs, or -1 if the nodes differ;
    `type_name` is the type of the actual one. Called by C++.
    """
    expected_index, actual_index, index = places
    wanted, node, path = Node(*expected[0][expected_index]), Node(*actual[0][actual_index]), actual[2][actual_index]
    if index < 0:
        text = _node_words(node, actual[1])
        if node.kind in ("dynamic_leaf", "static_leaf"):
            is_array = type_name.endswith(("Tracer", "ArrayImpl", "numpy.ndarray"))
            text = "an array" if is_array else f"a `{type_name}`"
        words = _node_words(wanted, expected[1])
        return path, f"found {text}, expected the structure of {what}, which has {words} here; make both alike"
    if node.kind in DICTS and index >= node.first_key - node.first:
        text, words = _node_words(node, actual[1]), _node_words(wanted, expected[1])
        return path, f"found {text}, expected {words}, as {what} has here; make both alike"
    entries = (actual[1][node.first + index], expected[1][wanted.first + index])
    texts = [short_text(*entry, _LONGEST_VALUE) if entry else "no value" for entry in entries]
    return static_path(actual, node.first + index), (
        f"found {texts[0]}, expected {texts[1]}, as {what} has here{alike(*texts)}; static parts of trees side by side "
        "must be equal by `==`"
    )
