"""Reads the nnx objects of a value into a tree that jax accepts, and builds them from one."""

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import errors
from flax.nnx import extract, graphlib, variablelib
from flax.nnx.pytreelib import AttributeStatus, Pytree

from partax._families.fields import identical
from partax._jax.private import array_type
from partax._jit.lost_changes import STATE

Variable: Any = variablelib.Variable
HIJAX: Any = variablelib.HijaxVariable


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Seen:
    """Represents an object that was visited before, by its number in the order of first visits."""

    index: int = dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Unregistered:
    """Represents a node that jax does not know as a pytree, such as a plain `nnx.Object`, by its attributes."""

    data: tuple[Any, ...]
    names: tuple[str, ...] = dataclasses.field(metadata={"static": True})
    statics: tuple[tuple[str, Any], ...] = dataclasses.field(metadata={"static": True})
    cls: type = dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NewReference:
    """Represents a `jax.Ref` that the function has created, by its value."""

    value: Any


STAND_INS = (Seen, Unregistered, NewReference)

PLAIN = frozenset({array_type, np.ndarray, type(None), bool, int, float, complex, str, bytes})
"""Classes whose instances are not graph nodes and contain none."""
NUMBERS = (bool, int, float, complex)
_FIXED = PLAIN - {*NUMBERS}


def is_object(value: Any) -> bool:
    """Whether a value is known by identity: a node of a graph, a Variable or a `jax.Ref`."""
    cls: Any = type(value)
    return issubclass(cls, (Variable, Pytree)) or cls is HIJAX or isinstance(value, jax.Ref)


def map_leaves(replace: Callable[[Any], Any], value: Any, is_leaf: Callable[[Any], bool]) -> Any:
    """A tree, or a bound method, with each leaf replaced; itself if no leaf changes, or if it is a leaf."""
    if type(value) is types.MethodType:
        owner = replace(value.__self__)
        return value if owner is value.__self__ else types.MethodType(value.__func__, owner)
    leaves, structure = jax.tree.flatten(value, is_leaf=is_leaf)
    if len(leaves) == 1 and leaves[0] is value:
        return value
    new = [replace(leaf) for leaf in leaves]
    return value if identical(leaves, new) else structure.unflatten(new)


def is_tree_class(cls: Any) -> bool:
    return issubclass(cls, Pytree) and cls._pytree__is_pytree


def names_in_order(node: Any) -> list[str]:
    """The attributes of a node that is a pytree, in jax's order: numbers by what they count."""
    if not type(node)._pytree__has_int_keys:
        return sorted(vars(node))
    return sorted(vars(node), key=lambda name: (0, int(name), "") if name.lstrip("-").isdecimal() else (1, 0, name))


def take_arrays_for_data(node: Any, is_checked: bool = False) -> None:
    """Make attributes with an array data, as nnx does outside of traces; tracers are static for it. If checked, raise
    its error for an array in a static attribute.
    """
    for name, value in vars(node).copy().items():
        if isinstance(value, jax.Array) and not node._pytree__nodes.get(name, False):
            if is_checked:
                node._check_value(name, value, AttributeStatus(is_data=True, explicit=False))
            vars(node)["_pytree__nodes"] = node._pytree__nodes.update({name: True})


def is_foreign(value: Any) -> bool:
    """Whether an object was created in another trace than the current one."""
    if issubclass(type(value), Variable):
        return not value._can_update
    state = getattr(value, STATE, None)
    return state is not None and not state.trace_state.is_valid()


class GraphReader:
    """Reads one tree after another, which may share objects. For results, it begins with those of the arguments."""

    def __init__(self, objects: list[Any] | None = None):
        # In the order of their first places, each before what is in it; attributes are in jax's order.
        self.objects: list[Any] = [] if objects is None else list(objects)
        self._indices = {id(value): i for i, value in enumerate(self.objects)}
        self._is_result = objects is not None
        self.has_met_any = False  # object in a tree

    def read(self, value: Any) -> Any:
        """The tree in which each object is itself or a copy at its first place, and `Seen` at all others."""
        cls: Any = type(value)
        if cls in PLAIN:
            return value
        if cls is HIJAX:
            words = f"found a hijax Variable of type `{value.var_type.__name__}`, expected one with hijax=False"
            raise TypeError(f"{words}; create it so, or use `partax.jit`")
        if not is_object(value):
            return map_leaves(self.read, value, is_object)
        index = self._indices.setdefault(id(value), len(self.objects))
        self.has_met_any = True
        if index < len(self.objects):
            return Seen(index)
        self.objects.append(value)
        if self._is_result and is_foreign(value):
            extract.check_consistent_aliasing(value, None)
            raise errors.TraceContextError(f"Trying to extract graph node from different trace level, got {value!r}")
        if issubclass(cls, Variable):
            return self._variable(value)
        if not issubclass(cls, Pytree):
            return NewReference(value[...]) if self._is_result else value
        return self._node(value) if cls._pytree__is_pytree else self._unregistered(value)

    def _node(self, node: Any) -> Any:
        if self._is_result:
            take_arrays_for_data(node)
        attributes, is_data = vars(node), node._pytree__nodes
        replaced: dict[str, Any] = {}
        for name in names_in_order(node):
            value = attributes[name]
            if type(value) in _FIXED or name == STATE or not is_data.get(name, False):
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
        if type(value) in _FIXED:
            return variable
        if isinstance(value, jax.Ref):
            read = self.read(value)
        else:
            leaves, structure = jax.tree.flatten(value)
            arrays = [jnp.asarray(leaf) if type(leaf) in NUMBERS else leaf for leaf in leaves]
            read = value if identical(leaves, arrays) else structure.unflatten(arrays)
        return variable if read is value else type(variable)._new(read, dict(variable._var_metadata))

    def _unregistered(self, node: Any) -> Unregistered:
        data, statics = dict[str, Any](), dict[str, Any]()
        for name in names_in_order(node):
            value = vars(node)[name]
            is_data = isinstance(value, jax.Array) or graphlib.is_node_leaf(value) or graphlib.is_node(value)
            (data if is_data else statics)[name] = value
        return Unregistered(tuple(map(self.read, data.values())), tuple(data), tuple(statics.items()), type(node))


class GraphBuilder:
    """Builds one tree after another, which have to be new, as their nodes are filled in place, with known objects."""

    def __init__(self, objects: list[Any] | None = None):
        self.objects: list[Any] = [] if objects is None else list(objects)

    def build(self, value: Any) -> Any:
        cls: Any = type(value)
        if cls in PLAIN:
            return value
        if cls is Seen:
            return self.objects[value.index]
        if cls is Unregistered:
            return self._unregistered(value)
        if cls is NewReference:
            value = jax.new_ref(value.value)
        if not is_object(value):
            return map_leaves(self.build, value, lambda leaf: isinstance(leaf, STAND_INS) or is_object(leaf))
        self.objects.append(value)
        if issubclass(cls, Variable):
            raw = value._raw_value
            if isinstance(raw, (jax.Ref, *STAND_INS)):
                object.__setattr__(value, "_raw_value", self.build(raw))
        elif is_tree_class(cls):
            attributes, is_data = vars(value), value._pytree__nodes
            for name in names_in_order(value):
                if type(attributes[name]) not in PLAIN and name != STATE and is_data.get(name, False):
                    attributes[name] = self.build(attributes[name])
        return value

    def _unregistered(self, stand_in: Unregistered) -> Any:
        node = object.__new__(stand_in.cls)
        self.objects.append(node)
        vars(node).update(stand_in.statics)
        vars(node).update(zip(stand_in.names, map(self.build, stand_in.data), strict=True))
        return node
