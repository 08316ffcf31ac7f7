"""The changes of a function to the objects in its arguments, by comparison with their state before."""

import copy
import dataclasses
from typing import Any

import jax

from partax import _core
from partax._jit.lost_changes import DELETED, Change
from partax._libraries.flax import graph

_MUTABLE = (list, dict, set, bytearray)


@dataclasses.dataclass(frozen=True)
class _Same:
    """An object or an array that is equal only to itself."""

    address: int
    value: Any = dataclasses.field(compare=False)  # without it, the address could be used again


def _contents(owner: Any) -> dict[Any, Any]:
    """Return the attributes of an object that a function may change."""
    if issubclass(type(owner), graph.Variable):
        return {"_raw_value": owner._raw_value, "_var_metadata": owner._var_metadata}
    return vars(owner) if issubclass(type(owner), graph.Pytree) else {}  # the value of a jax.Ref does not belong to it


def _form(value: Any) -> Any:
    """Return the parts of a value, with arrays and objects by identity, as is a value that cannot be compared."""

    def comparable(leaf: Any) -> Any:
        return _Same(id(leaf), leaf) if graph.is_object(leaf) or _is_array(leaf) else leaf

    if graph.is_object(value) or isinstance(value, jax.Array):
        return _Same(id(value), value)
    try:
        leaves, structure = _core.tree_flatten(value, graph.is_object)
        hash(structure)  # takes a snapshot of what may change in place
        return structure, _core.Static(tuple(map(comparable, leaves)))
    except TypeError:
        return _Same(id(value), value)


def _is_array(value: Any) -> bool:
    return not graph.is_object(value) and _core.node_kind(value) == "dynamic_leaf"


class Snapshot:
    """The objects of a call's arguments as they were before the function."""

    def __init__(self, objects: list[Any]):
        self.objects = list(objects)
        for node in objects:
            for name, value in vars(node).items() if graph.is_tree_class(type(node)) else ():
                if type(value) in _MUTABLE and not node._pytree__nodes.get(name, False):
                    vars(node)[name] = copy.deepcopy(value)  # it is the caller's
        self._before = [(type(owner), {k: (v, _form(v)) for k, v in _contents(owner).items()}) for owner in objects]

    def changes(self) -> list[Change]:
        changes: list[Change] = []
        for index, (owner, (cls, before)) in enumerate(zip(self.objects, self._before, strict=True)):
            if type(owner) is not cls:
                raise ValueError(f"Expected a node of type {cls} for index {index}, but got one of {type(owner)}.")
            if graph.is_tree_class(cls):
                # If there is another `_pytree__nodes`, the attribute may have been deleted and set again.
                graph.take_arrays_for_data(owner, before.get("_pytree__nodes", (None,))[0] is owner._pytree__nodes)
            now = _contents(owner)
            for name in sorted(before.keys() | now.keys(), key=str):
                earlier, form = before.get(name, (None, None))
                value = now.get(name, DELETED)
                if name not in before or value is DELETED or form != _form(value):
                    changes.append(Change("", index, owner, name, value, earlier))
        return changes

    def unchanged(self, changes: list[Change]) -> list[Any]:
        """The arrays in attributes that have not changed."""
        changed = {(change.number, change.name) for change in changes}
        attributes = [
            value
            for index, (_, before) in enumerate(self._before)
            for name, (value, _) in before.items()
            if (index, name) not in changed
        ]
        return list(filter(_is_array, jax.tree.leaves(attributes, is_leaf=graph.is_object)))
