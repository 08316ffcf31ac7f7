"""Objects of Flax nnx that steps change in place: a chunk carries their state, and changes them once."""

import operator
from collections.abc import Collection
from typing import Any

from flax import nnx

from partax._jit.lost_changes import changes, watch_named
from partax._libraries.flax.graph import Variable, is_object
from partax._steps.places import place_text


def objects_in(value: Any) -> list[tuple[Any, ...]]:
    """The keys to each object or Variable in an argument that a step may change in place; the outermost first."""
    return sorted((path for path, it in nnx.iter_graph(value) if is_object(it)), key=len)


def are_variables_alone(value: Any) -> bool:
    """Whether an argument is a tree with no objects but Variables, as an optimizer's state of `nnx.state(model)`."""
    return not is_object(value) and all(isinstance(it, Variable) for it in _objects(value))


def refuse_method(step: Any) -> None:
    """Raises a TypeError for a step that belongs to such an object, which a chunk could not change."""
    owner = getattr(step, "__self__", None)
    if objects_in([owner]):
        raise TypeError(
            f"`step`: found a method of a `{type(owner).__name__}`, which it may change in place, expected a function "
            "that takes the object as an argument"
        )


def refuse_objects(batch: dict[str, Any]) -> None:
    """Raises a TypeError for a batch that holds such: the steps of a chunk see copies of these."""
    for path in objects_in(batch):
        raise TypeError(
            f"`{place_text(path, 'batch')}`: found an object of Flax in a batch, where what a step changes in it would "
            "be lost, expected arrays; give its state, or pass it to the call"
        )


def _objects(value: Any) -> list[Any]:
    return [it for _, it in nnx.iter_graph(value) if is_object(it)]


class Held:
    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self._graph, self.state = nnx.split(values)  # as they came
        self._made, self._seen = list[Any](), list[Any]()

    def without(self, names: Collection[str]) -> "Held | None":
        left = {name: value for name, value in self._values.items() if name not in names}
        return Held(left) if left else None

    def made(self, state: Any) -> dict[str, Any]:
        made = nnx.merge(self._graph, state)
        self._made, self._seen = _objects(made), watch_named(made.items()) or []
        return made

    def state_of(self, made: dict[str, Any], result: Any) -> Any:
        """Their state after the step; a TypeError if it has changed more than that, or returns one of them."""
        own = {
            id(it)
            for value in made.values()
            for it in _objects(value)
            if not isinstance(it, Variable) or are_variables_alone(value)
        }
        for path, it in nnx.iter_graph(result):
            if id(it) in own:
                raise TypeError(
                    f"`{place_text(path)}`: found an object of Flax that is an argument and changed in place, "
                    "expected what the step has computed; leave it out"
                )
        after, state = nnx.split(made)
        if after != self._graph or not all(map(operator.is_, _objects(made), self._made)):
            place = next((f", as `{it.path}`" for it in changes(self._seen) if not it.is_value), "")
            raise TypeError(
                f"found a step that changes more of {', '.join(f'`{it}`' for it in made)} than the values of "
                f"Variables{place}, expected no other attributes, modules or numbers after it; call it step by step"
            )
        return state

    def update(self, state: Any) -> None:
        """Changes them, once."""
        try:
            nnx.update(self._values, state)
        except ValueError as error:  # an array in a tuple, which cannot be changed
            names = " and ".join(f"`{it}`" for it in self._values)
            raise TypeError(
                f"found an array beside objects of Flax in a tuple in {names} ({error}), expected objects alone; make "
                "it an argument of its own"
            ) from None
