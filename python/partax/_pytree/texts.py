"""The `repr` of static nodes, and error messages for trees that differ. Called by the native functions of trees."""

from typing import Any

from partax import _core
from partax._pytree.short_text import LONGEST, short_text
from partax._pytree.spec_data import DICTS, Node, SpecData, alike, repr_text, static_path

_LONGEST_VALUE = 200  # in a message


class _AnyLeaf:
    def __repr__(self) -> str:
        return "*"


def node_text(node: "_core.FlatSpec | _core.Static[Any]") -> str:
    """`FlatSpec({'weight': *})`, with `*` for each leaf that is in a dictionary, or `Static(value)`."""
    name = type(node).__name__
    try:
        is_spec = isinstance(node, _core.FlatSpec)
        value = _core.tree_unflatten(node, [_AnyLeaf()] * len(node.paths)) if is_spec else node.value
    except MemoryError:
        raise
    except Exception:  # of a class that accepts no such leaves
        return f"{name}(...)"
    return f"{name}({short_text(value, LONGEST - len(name) - 2)})"


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


def _unlike_nodes(expected: SpecData, actual: SpecData | None, type_name: str, what: str) -> str:
    """The message for a node that differs from the node of `what` at the same path; `actual` is None for a leaf."""
    node = Node(*expected[0][0])
    is_array = type_name.endswith(("Tracer", "ArrayImpl", "numpy.ndarray"))
    text = "an array" if is_array else f"a `{type_name}`"
    if actual is not None:
        actual_node = Node(*actual[0][0])
        text = _node_words(actual_node, actual[1], actual_node.cls is node.cls)
    wanted = _node_words(node, expected[1], True)
    return f"found {text}, expected the structure of {what}, which has {wanted} here; make both alike"


def _unequal_statics(expected: SpecData, actual: SpecData, index: int, what: str) -> tuple[str, str]:
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


def difference(expected: SpecData, actual: SpecData | None, detail: int | str, what: str) -> tuple[str, str]:
    """The path below a tree and the message for its difference from that of `what`; `detail` is the index of a static
    value, or the name of the type that differs. Called by C++.
    """
    if actual is not None and isinstance(detail, int):
        return _unequal_statics(expected, actual, detail, what)
    return "", _unlike_nodes(expected, actual, str(detail), what)
