"""Puts the objects of a tree that `GraphReader` has made together again."""

from typing import Any, cast

import jax

from partax._libraries.flax.graph import (
    PLAIN,
    REGISTERED,
    STAND_INS,
    STATE,
    NewReference,
    Seen,
    Unregistered,
    Variable,
    is_object,
    is_tree_class,
    names_in_order,
    with_leaves,
)


def _is_leaf(value: Any) -> bool:
    return isinstance(value, STAND_INS) or is_object(value)


class GraphBuilder:
    """Builds one tree after another, which have to be new: their nodes are filled in place. It has the reader's
    objects.
    """

    def __init__(self, known: list[Any] | None = None):
        self.objects: list[Any] = [] if known is None else list(known)

    def build(self, value: Any) -> Any:
        """The graph that was read."""
        cls: Any = type(value)
        if cls in PLAIN:
            return value
        if cls is Seen:
            return self.objects[value.index]
        if cls is Unregistered:
            return self._unregistered(value)
        if cls is NewReference:
            value = cast(Any, jax.new_ref(value.value))
        is_variable = issubclass(cls, Variable)
        if not is_variable and cls not in REGISTERED and not isinstance(value, jax.Ref):
            return with_leaves(value, _is_leaf, self.build)
        self.objects.append(value)
        if is_variable:
            raw = cast("Any", value)._raw_value
            if isinstance(raw, (jax.Ref, *STAND_INS)):
                object.__setattr__(value, "_raw_value", self.build(raw))
        elif is_tree_class(cls):
            self._fill(value)
        return value

    def _fill(self, node: Any) -> None:
        attributes, is_data = vars(node), node._pytree__nodes
        for name in names_in_order(node):
            value = attributes[name]
            if type(value) not in PLAIN and name != STATE and is_data.get(name, False):
                attributes[name] = self.build(value)

    def _unregistered(self, stand_in: Unregistered) -> Any:
        functions = REGISTERED[stand_in.cls]
        node = functions.create_empty(stand_in.aux)
        self.objects.append(node)
        children = [self.build(child) for child in stand_in.children]
        functions.init(node, [*zip(stand_in.names, children, strict=True), *stand_in.statics])
        return node
