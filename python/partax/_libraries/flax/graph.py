"""What an nnx graph is made of, and what stands in a tree where jax could not have the object itself."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax.nnx import graphlib, tracers, variablelib
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
    """Stands for an object that the tree has had before, or that is one of the arguments', by its number in the order
    of the first visits.
    """

    index: int = dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Unregistered:
    """Stands for a graph node that jax does not know as a pytree, such as a plain `nnx.Object`.

    `aux` is what nnx makes an empty node of the class from; the children have names, all else is in `statics`.
    """

    children: tuple[Any, ...]
    cls: type = dataclasses.field(metadata={"static": True})
    aux: Any = dataclasses.field(metadata={"static": True})
    names: tuple[Any, ...] = dataclasses.field(metadata={"static": True})
    statics: tuple[tuple[Any, Any], ...] = dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NewReference:
    """Stands in a result for a `jax.Ref` that the function has made, by what it holds."""

    value: Any


STAND_INS = (Seen, Unregistered, NewReference)

_ARRAYS = (*filter(None, (concrete_array_type(),)), np.ndarray)
PLAIN = frozenset({*_ARRAYS, type(None), bool, int, float, complex, str, bytes})
"""Classes whose instances are no graph node and contain none."""
NUMBERS = (bool, int, float, complex)


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


def is_tree_class(cls: Any) -> bool:
    """Whether jax flattens instances of a graph node's class."""
    return issubclass(cls, Pytree) and bool(cls._pytree__is_pytree)


def names_in_order(node: Any) -> list[str]:
    """The attributes of a node that is a pytree, in the order in which jax has them: numbers by what they count."""
    if not type(node)._pytree__has_int_keys:
        return sorted(vars(node))
    return sorted(vars(node), key=lambda name: (0, int(name), "") if name.lstrip("-").isdecimal() else (1, 0, name))


def children_of(node: Any) -> tuple[dict[Any, Any], dict[Any, Any], Any]:
    """The data, the static attributes and the aux data of a node that is no pytree, as nnx has them."""
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
    """Has attributes of a node as data."""
    if names:
        vars(node)["_pytree__nodes"] = node._pytree__nodes.update(dict.fromkeys(names, True))


def is_valid(value: Any) -> bool:
    """Whether an object may be changed by the trace that is under way."""
    if issubclass(type(value), Variable):
        return bool(value._can_update)
    state = getattr(value, STATE, None)
    return state is None or bool(state.trace_state.is_valid())
