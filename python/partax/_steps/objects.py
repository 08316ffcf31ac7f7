"""Objects of Flax nnx that steps change in place: a chunk carries their state, and changes them once."""

import operator
from collections.abc import Collection
from typing import Any

from flax import nnx

from partax._jit.lost_changes import changes, watch_named
from partax._libraries.flax.graph import Variable, is_object
from partax._steps.places import path_text


def split_arguments(values: dict[str, Any], batches: dict[str, Any]) -> "tuple[ObjectsInPlace | None, dict[str, Any]]":
    """Return the arguments that steps change in place, if any, and those that may be carried: also a tree whose only
    objects are Variables, such as the state of an optimizer.
    """
    for path in sorted((path for path, one in nnx.iter_graph(batches) if is_object(one)), key=len):
        raise TypeError(
            f"`{path_text(path, 'batch')}`: found an object of Flax in a batch, where what a step changes in it would "
            "be lost, expected arrays; give its state, or pass it to the call"
        )
    in_place = {name: value for name, value in values.items() if _objects(value)}
    candidates = {name: value for name, value in values.items() if name not in in_place or _has_only_variables(value)}
    return ObjectsInPlace(in_place) if in_place else None, candidates


def _has_only_variables(value: Any) -> bool:
    return not is_object(value) and all(isinstance(one, Variable) for one in _objects(value))


def refuse_method(step: Any) -> None:
    """Raise a TypeError for a step that belongs to an object, which a chunk could not change."""
    owner = getattr(step, "__self__", None)
    if _objects([owner]):
        raise TypeError(
            f"`step`: found a method of a `{type(owner).__name__}`, which it may change in place, expected a function "
            "that takes the object as an argument"
        )


def _objects(value: Any) -> list[Any]:
    return [one for _, one in nnx.iter_graph(value) if is_object(one)]


class ObjectsInPlace:
    def __init__(self, values: dict[str, Any]) -> None:
        self._values, self.names = values, values.keys()
        self._graph, self.state = nnx.split(values)
        self._copies, self._contents = list[Any](), list[Any]()

    def without(self, names: Collection[str]) -> "ObjectsInPlace | None":
        rest = {name: value for name, value in self._values.items() if name not in names}
        return ObjectsInPlace(rest) if rest else None

    def copies(self, state: Any) -> dict[str, Any]:
        values = nnx.merge(self._graph, state)
        self._copies, self._contents = _objects(values), watch_named(values.items())
        return values

    def state_after(self, values: dict[str, Any], result: Any) -> Any:
        """Return the state after a step; a TypeError if the step changed more than that, or returned an argument."""
        arguments = {
            id(one)
            for value in values.values()
            for one in _objects(value)
            if not isinstance(one, Variable) or _has_only_variables(value)
        }
        for path, one in nnx.iter_graph(result):
            if id(one) in arguments:
                raise TypeError(
                    f"`{path_text(path)}`: found an object of Flax that is an argument and changed in place, "
                    "expected what the step has computed; leave it out"
                )
        graph, state = nnx.split(values)
        if graph != self._graph or not all(map(operator.is_, _objects(values), self._copies)):
            place = next((f", as `{change.path}`" for change in changes(self._contents) if not change.is_value), "")
            raise TypeError(
                f"found a step that changes more of {', '.join(f'`{name}`' for name in values)} than the values of "
                f"Variables{place}, expected no other attributes, modules or numbers after it; call it step by step"
            )
        return state

    def update(self, state: Any) -> None:
        nnx.update(self._values, state)
