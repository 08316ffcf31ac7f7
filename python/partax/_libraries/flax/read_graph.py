"""Reads the nnx objects of a tree, as jax takes it and in the order of their first places, and puts them together."""

from typing import Any, cast

import jax
import jax.numpy as jnp

from partax._families.fields import identical
from partax._libraries.flax.errors import refuse_foreign, refuse_hijax
from partax._libraries.flax.graph import (
    HIJAX,
    NUMBERS,
    PLAIN,
    REGISTERED,
    STAND_INS,
    STATE,
    NewReference,
    Seen,
    Unregistered,
    Variable,
    arrays_taken_for_static,
    children_of,
    is_object,
    is_tree_class,
    names_in_order,
    take_for_data,
    with_leaves,
)


class GraphReader:
    """Reads one tree after another; an object that more than one of them has is one object.

    Attributes:
      objects: in the order of their first places, each before what is in it; attributes are in jax's order.
      has_met_any: whether there was an object in a tree.
    """

    def __init__(self, known: list[Any] | None = None):
        """Begins; where results are read, with the known objects of the arguments."""
        self.objects: list[Any] = [] if known is None else list(known)
        self._indices = {id(value): i for i, value in enumerate(self.objects)}
        self._is_result = known is not None
        self.has_met_any = False

    def read(self, value: Any) -> Any:
        """The tree in which each object is itself at its first place, and `Seen` at all others.

        What has to differ from the caller's own is a copy.
        """
        cls: Any = type(value)
        if cls in PLAIN:
            return value
        if cls is HIJAX:
            refuse_hijax(value)
        is_variable = issubclass(cls, Variable)
        if not is_variable and cls not in REGISTERED and not isinstance(value, jax.Ref):
            return with_leaves(value, is_object, self.read)
        index = self._indices.setdefault(id(value), len(self.objects))
        self.has_met_any = True
        if index < len(self.objects):
            return Seen(index)
        self.objects.append(value)
        if self._is_result:
            refuse_foreign(value)
        if is_variable:
            return self._variable(value)
        if cls not in REGISTERED:
            return NewReference(value[...]) if self._is_result else value
        return self._node(value) if is_tree_class(cls) else self._unregistered(value)

    def _node(self, node: Any) -> Any:
        if self._is_result:
            take_for_data(node, arrays_taken_for_static(node))
        attributes, is_data = vars(node), node._pytree__nodes
        replaced: dict[str, Any] = {}
        for name in names_in_order(node):
            value = attributes[name]
            is_plain = type(value) in PLAIN and type(value) not in NUMBERS
            if is_plain or name == STATE or not is_data.get(name, False):
                continue
            read = jnp.asarray(value) if type(value) in NUMBERS else self.read(value)
            if read is not value:
                replaced[name] = read
        if not replaced:
            return node
        copy = object.__new__(type(node))
        copy.__dict__.update({**attributes, **replaced})
        return copy

    def _variable(self, variable: Any) -> Any:
        value = variable._raw_value
        if type(value) in PLAIN and type(value) not in NUMBERS:
            return variable
        if isinstance(value, jax.Ref):
            read = self.read(value)
        else:
            leaves, structure = jax.tree.flatten(value)
            arrays = [jnp.asarray(leaf) if type(leaf) in NUMBERS else leaf for leaf in leaves]
            read = value if identical(leaves, arrays) else structure.unflatten(arrays)
        return variable if read is value else type(variable)._new(read, dict(variable._var_metadata))

    def _unregistered(self, node: Any) -> Unregistered:
        data, statics, aux = children_of(node)
        children = tuple(self.read(child) for child in data.values())
        return Unregistered(children, type(node), aux, tuple(data), tuple(statics.items()))


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
            return with_leaves(value, lambda it: isinstance(it, STAND_INS) or is_object(it), self.build)
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
