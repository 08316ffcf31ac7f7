"""What an nnx graph is made of; a tree with nnx objects as jax takes it, read from them and made into them again."""

import dataclasses
import types
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import errors
from flax.nnx import extract, graphlib, tracers, variablelib
from flax.nnx.pytreelib import Pytree

from partax._families.fields import identical
from partax._jax.private import concrete_array_type

Variable: Any = variablelib.Variable
HIJAX: Any = variablelib.HijaxVariable
REGISTERED: dict[type, Any] = graphlib.GRAPH_REGISTRY
"""The classes whose instances are nodes of a graph, and by which functions nnx reads and fills them."""

VARIABLE_SLOTS = (Variable._raw_value, Variable._trace_state, tracers.TraceState._jax_trace)
"""Where a Variable has its value and its state, and that the trace that it was made in."""

STATIC_CACHE = (getattr(graphlib, "GRAPH_CONTEXT", None), "tmp_static_cache")
"""Where `nnx.cached_partial` leaves what it has cached, for each thread."""

STATE = "_pytree__state"
"""Where an nnx object has the trace that it was made in."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Seen:
    """Represents an object that the tree or the arguments had before, by its number in the order of first visits."""

    index: int = dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Unregistered:
    """Represents a graph node that jax does not know as a pytree, such as a plain `nnx.Object`. `aux` is what nnx makes
    an empty node of the class from; the children have names, all else is in `statics`.
    """

    children: tuple[Any, ...]
    cls: type = dataclasses.field(metadata={"static": True})
    aux: Any = dataclasses.field(metadata={"static": True})
    names: tuple[Any, ...] = dataclasses.field(metadata={"static": True})
    statics: tuple[tuple[Any, Any], ...] = dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NewReference:
    """Represents in a result a `jax.Ref` that the function has made, by what it holds."""

    value: Any


STAND_INS = (Seen, Unregistered, NewReference)

_ARRAYS = (*filter(None, (concrete_array_type(),)), np.ndarray)
PLAIN = frozenset({*_ARRAYS, type(None), bool, int, float, complex, str, bytes})
"""Classes whose instances are not graph nodes and contain none."""
NUMBERS = (bool, int, float, complex)
_FIXED = PLAIN - {*NUMBERS}


def is_object(value: Any) -> bool:
    """Whether a value is known by identity: a node of a graph, a Variable or a `jax.Ref`."""
    cls: Any = type(value)
    return cls in REGISTERED or cls is HIJAX or issubclass(cls, Variable) or isinstance(value, jax.Ref)


def with_leaves(value: Any, is_leaf: Callable[[Any], bool], made: Callable[[Any], Any]) -> Any:
    """A tree with what is made of each leaf; itself where that is the leaf, or where it is one."""
    leaves, structure = jax.tree.flatten(value, is_leaf=is_leaf)
    if len(leaves) == 1 and leaves[0] is value:
        return value
    new = [made(leaf) for leaf in leaves]
    return value if identical(leaves, new) else structure.unflatten(new)


def of_method(method: Any, made: Callable[[Any], Any]) -> Any:
    """A bound method of what is made of its object; itself where that is the object."""
    owner = made(method.__self__)
    return method if owner is method.__self__ else types.MethodType(method.__func__, owner)


def is_tree_class(cls: Any) -> bool:
    return issubclass(cls, Pytree) and bool(cls._pytree__is_pytree)


def names_in_order(node: Any) -> list[str]:
    """The attributes of a node that is a pytree, in the order in which jax has them: numbers by what they count."""
    if not type(node)._pytree__has_int_keys:
        return sorted(vars(node))
    return sorted(vars(node), key=lambda name: (0, int(name), "") if name.lstrip("-").isdecimal() else (1, 0, name))


def children_of(node: Any) -> tuple[dict[Any, Any], dict[Any, Any], Any]:
    """The data, the static attributes and the aux data of a node that is not a pytree, as nnx has them."""
    items, aux = REGISTERED[type(node)].flatten(node)
    data: dict[Any, Any] = {}
    statics: dict[Any, Any] = {}
    for key, value in items:
        if isinstance(value, graphlib.DataElem):
            data[key] = value.value
        elif isinstance(value, graphlib.StaticElem):
            statics[key] = value.value
        else:
            is_data = isinstance(value, jax.Array) or graphlib.is_node_leaf(value) or graphlib.is_node(value)
            (data if is_data else statics)[key] = value
    return data, statics, aux


def arrays_taken_for_static(node: Any) -> list[str]:
    """The attributes that hold a traced array and that nnx has as static, since it takes no tracer for data."""
    is_data = node._pytree__nodes
    return [name for name, value in vars(node).items() if isinstance(value, jax.Array) and not is_data.get(name, False)]


def take_for_data(node: Any, names: list[str]) -> None:
    if names:
        vars(node)["_pytree__nodes"] = node._pytree__nodes.update(dict.fromkeys(names, True))


def _is_of_this_trace(value: Any) -> bool:
    if issubclass(type(value), Variable):
        return bool(value._can_update)
    state = getattr(value, STATE, None)
    return state is None or bool(state.trace_state.is_valid())


class GraphReader:
    """Reads one tree after another; an object that more than one of them has is one object. Where results are read, it
    begins with the objects of the arguments.
    """

    def __init__(self, objects: list[Any] | None = None):
        # In the order of their first places, each before what is in it; attributes are in jax's order.
        self.objects: list[Any] = [] if objects is None else list(objects)
        self._indices = {id(value): i for i, value in enumerate(self.objects)}
        self._is_result = objects is not None
        self.has_met_any = False  # object in a tree
        self.refused: Any = None  # the object that an error is about

    def read(self, value: Any) -> Any:
        """The tree in which each object is itself at its first place, or a copy where it has to differ from the
        caller's own, and `Seen` at all others.
        """
        cls: Any = type(value)
        if cls in PLAIN:
            return value
        if cls is HIJAX:
            self.refused = value
            kind = value.var_type.__name__
            raise TypeError(f"found a hijax Variable of type `{kind}`, expected one with hijax=False")
        if cls is types.MethodType:
            return of_method(value, self.read)
        is_variable = issubclass(cls, Variable)
        if not is_variable and cls not in REGISTERED and not isinstance(value, jax.Ref):
            return with_leaves(value, is_object, self.read)
        index = self._indices.setdefault(id(value), len(self.objects))
        self.has_met_any = True
        if index < len(self.objects):
            return Seen(index)
        self.objects.append(value)
        if self._is_result and not _is_of_this_trace(value):
            self.refused = value
            extract.check_consistent_aliasing(value, None)
            raise errors.TraceContextError(f"Trying to extract graph node from different trace level, got {value!r}")
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
        data, statics, aux = children_of(node)
        children = tuple(self.read(child) for child in data.values())
        return Unregistered(children, type(node), aux, tuple(data), tuple(statics.items()))


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
        if cls is types.MethodType:
            return of_method(value, self.build)
        if cls is Unregistered:
            return self._unregistered(value)
        if cls is NewReference:
            value = cast(Any, jax.new_ref(value.value))
        is_variable = issubclass(cls, Variable)
        if not is_variable and cls not in REGISTERED and not isinstance(value, jax.Ref):
            return with_leaves(value, lambda leaf: isinstance(leaf, STAND_INS) or is_object(leaf), self.build)
        self.objects.append(value)
        if is_variable:
            raw = cast("Any", value)._raw_value
            if isinstance(raw, (jax.Ref, *STAND_INS)):
                object.__setattr__(value, "_raw_value", self.build(raw))
        elif is_tree_class(cls):
            attributes, is_data = vars(value), cast("Any", value)._pytree__nodes
            for name in names_in_order(value):
                if type(attributes[name]) not in PLAIN and name != STATE and is_data.get(name, False):
                    attributes[name] = self.build(attributes[name])
        return value

    def _unregistered(self, stand_in: Unregistered) -> Any:
        functions = REGISTERED[stand_in.cls]
        node = functions.create_empty(stand_in.aux)
        self.objects.append(node)
        children = [self.build(child) for child in stand_in.children]
        functions.init(node, [*zip(stand_in.names, children, strict=True), *stand_in.statics])
        return node
