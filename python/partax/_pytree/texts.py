"""The `repr` of trees, and error messages for trees that differ. Called by the native functions of trees."""

from collections.abc import Iterator
from typing import Any

from partax._families.objects import attribute_of
from partax._pytree.short_text import LONGEST, name_text, one_line, short_text
from partax._pytree.spec_data import DICTS, Node, SpecData, alike, node_of, repr_text, static_path

_LONGEST_VALUE = 200  # in a message
_LONGEST_NAME = 40  # of a class or of a function in the text of a tree


def tree_text(data: SpecData) -> str:
    """The tree in one line as Python would print it, with `*` for array leaves. Runs the `repr` of static values."""
    longest = LONGEST - len("FlatSpec()")
    nodes = map(node_of, data[0])
    text = ""
    for piece in _pieces(next(nodes), 0, nodes, data[1]):
        text += piece
        if len(text) > longest:  # without the rest of a large tree
            break
    return one_line(text, longest)


def _pieces(node: Node, index: int, nodes: Iterator[Node], statics: tuple[Any, ...]) -> Iterator[str]:
    """The strings of a node, or of one leaf of a run. The descendants are next in `nodes`."""
    if node.kind in ("dynamic_leaf", "static_leaf", "static", "none"):
        words = {"dynamic_leaf": "*", "none": "None"}
        yield words.get(node.kind) or _value_text(statics[node.first + index])
        return
    name = one_line(node.type_name.rpartition(".")[2], _LONGEST_NAME)
    fields = [(field, i) for i, field in enumerate(node.fields, node.first) if not field.startswith("__")]
    start, end = {"tuple": ("(", ",)" if node.arity == 1 else ")"), "list": "[]", "dict": "{}"}.get(
        node.kind, (f"{name}(", ")")
    )
    if node.kind in DICTS[1:] and node.arity > 0:
        factory = f"{_value_text(statics[node.first])}, " if node.kind == "default_dict" else ""
        start, end = f"{start}{factory}{{", "})"
    elif node.kind == "registered" and node.arity > 0:
        start = f"{name}[{_value_text(statics[node.first])}]("
    yield start
    position = 0
    while position < node.arity:
        child = next(nodes)
        for i in range(child.size):
            label = f"{node.children[position]}=" if position < len(node.children) else ""
            key = f"{_value_text(statics[node.first_key + position])}: " if node.kind in DICTS else label
            yield f", {key}" if position > 0 else key
            yield from _pieces(child, i, nodes, statics)
            position += 1
    if node.fields:
        next(nodes)  # the second entry of the node
    for number, (field, i) in enumerate(fields, position):
        yield f"{', ' if number > 0 else ''}{field}={_value_text(statics[i])}"
    yield end


def _value_text(entry: tuple[Any] | tuple[()] | None) -> str:
    """A static value, or the name of a function."""
    if not entry:
        return "<dropped>" if entry is None else "<absent>"
    name = attribute_of(entry[0], "__name__") if callable(entry[0]) else None
    return name_text(name, _LONGEST_NAME) if isinstance(name, str) else short_text(entry[0])


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
