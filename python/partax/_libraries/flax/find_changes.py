"""The changes of a function to the objects in its arguments, by comparison with their state before."""

import copy
from typing import Any, NamedTuple

import jax
from flax.nnx.pytreelib import AttributeStatus

from partax import _core
from partax._libraries.flax import graph

_MUTABLE = (list, dict, set, bytearray)


class _Place(NamedTuple):
    """Identifies an object or an array while two values are compared."""

    identity: int


class _Before(NamedTuple):
    value: Any
    form: tuple[Any, list[Any]] | None  # None if the value cannot be changed in place


class Change(NamedTuple):
    """One thing that is different now, in the object at this place."""

    place: int
    owner: Any
    name: Any
    before: Any  # None if it was not there
    value: Any


DELETED: Any = object()


def _contents(owner: Any) -> dict[Any, Any]:
    """Return the attributes of an object that a function may change."""
    if issubclass(type(owner), graph.Variable):
        return {"_raw_value": owner._raw_value, "_var_metadata": owner._var_metadata}
    return vars(owner) if issubclass(type(owner), graph.Pytree) else {}  # the value of a jax.Ref does not belong to it


def _form(value: Any) -> tuple[Any, list[Any]]:
    """Return the parts of a value, with arrays and objects by identity, and a list of these. A value with a part that
    cannot be compared is identified by identity too.
    """
    leaves: list[Any] = []

    def placed(leaf: Any) -> Any:
        if not graph.is_object(leaf) and not _is_array(leaf):
            return leaf
        leaves.append(leaf)
        return _Place(id(leaf))

    try:
        return _core.flatten(jax.tree.map(placed, value, is_leaf=graph.is_object), "value")[1], leaves
    except TypeError:
        return _Place(id(value)), [value]


def _remembered(value: Any) -> _Before:
    is_fixed = type(value) in graph.PLAIN or graph.is_object(value) or isinstance(value, jax.Array)
    return _Before(value, None if is_fixed else _form(value))


def _differs(before: _Before, value: Any) -> bool:
    if before.form is None and value is before.value:
        return False
    return (before.form or _form(before.value))[0] != _form(value)[0]


def _is_array(value: Any) -> bool:
    return not graph.is_object(value) and _core.node_kind(value) == "dynamic_leaf"


class Snapshot:
    """The objects of a call's arguments as they were before the function."""

    def __init__(self, objects: list[Any]):
        self.objects = list(objects)
        self._classes = list(map(type, objects))
        for owner in objects:
            _own_statics(owner)
        self._before: list[dict[Any, _Before]] = [
            {name: _remembered(value) for name, value in _contents(owner).items()} for owner in objects
        ]

    def changes(self) -> list[Change]:
        changes: list[Change] = []
        for index, owner in enumerate(self.objects):
            cls = self._classes[index]
            if type(owner) is not cls:
                raise ValueError(
                    f"Expected a node of type {cls} for index {index}, but got a node of type {type(owner)}."
                )
            before = self._before[index]
            if graph.is_tree_class(cls):
                _take_arrays_for_data(owner, before)
            now = _contents(owner)
            for name in sorted(before.keys() | now.keys(), key=str):
                earlier, value = before.get(name), now.get(name, DELETED)
                if earlier is None or value is DELETED or _differs(earlier, value):
                    changes.append(Change(index, owner, name, earlier and earlier.value, value))
        return changes

    def unchanged(self, changes: list[Change]) -> list[Any]:
        """The arrays of what is as it was."""
        changed = {(change.place, change.name) for change in changes}
        return [
            leaf
            for index, before in enumerate(self._before)
            for name, earlier in before.items()
            if (index, name) not in changed
            for leaf in jax.tree.leaves(earlier.value, is_leaf=graph.is_object)
            if _is_array(leaf)
        ]


def _take_arrays_for_data(node: Any, before: dict[Any, _Before]) -> None:
    """Classify new attributes as nnx does outside of traces: an array is data, and an error in a static attribute."""
    names = graph.arrays_taken_for_static(node)
    none_is_new = "_pytree__nodes" in before and before["_pytree__nodes"].value is node._pytree__nodes
    for name in names:
        if none_is_new:  # else it may have been deleted and set again
            node._check_value(name, vars(node)[name], AttributeStatus(is_data=True, explicit=False))
    graph.take_for_data(node, names)


def _own_statics(owner: Any) -> None:
    """Copy the mutable static values that a traced node shares with the caller's."""
    if not graph.is_tree_class(type(owner)):
        return
    for name, value in vars(owner).items():
        if type(value) in _MUTABLE and not owner._pytree__nodes.get(name, False):
            vars(owner)[name] = copy.deepcopy(value)
