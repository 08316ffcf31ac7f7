"""Does to the caller's objects what a function has done to those that it was traced with."""

import json
from array import array
from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

from flax.nnx import graphlib, tracers

from partax._libraries.flax.build_graph import GraphBuilder
from partax._libraries.flax.errors import refuse_change
from partax._libraries.flax.graph import REGISTERED, STATE, Variable


class Outcome(NamedTuple):
    """What a traced call gives: trees as `GraphReader` makes them, with the objects of the arguments as `Seen`.

    The native wrapper reads the first four fields.

    Attributes:
      result: of the function.
      values: what attributes are set to.
      owners: the numbers of the objects that these are of, as an array of unsigned ints has them in memory.
      is_plain: whether this is all, there are no objects in it, and all of it are values of Variables.
      names: of the attributes, a list as JSON; like the owners one constant, which no call makes anew.
      deleted: owners and names of attributes to delete.
      refilled: nodes of which nnx knows only how to fill them, and with what.
      has_objects: whether there is an object in any of these.
      kept: arrays that must not be donated, since objects keep them.
    """

    result: Any
    values: tuple[Any, ...] = ()
    owners: bytes = b""
    is_plain: bool = True
    names: str = "[]"
    deleted: tuple[tuple[int, str], ...] = ()
    refilled: tuple[tuple[int, Any], ...] = ()
    has_objects: bool = False
    kept: tuple[Any, ...] = ()

    def abstract_result(self, objects: list[Any]) -> Any:
        """The result of a call that has not been run, in which objects of the arguments are copies."""
        if not self.has_objects:
            return self.result
        return apply_changes(self, graphlib.clone(objects, graph=True))


def apply_changes(outcome: Outcome, objects: list[Any]) -> Any:
    """Changes the objects of a call's arguments, as `GraphReader` has found them, and gives the call's result.

    Either all changes are made or, where it raises, none.
    """
    result, values, owners, _, names, deleted, refilled, has_objects, _ = outcome
    changed = array("I", owners)
    if has_objects:
        builder = GraphBuilder(objects)
        values, refilled, result = builder.build(values), builder.build(refilled), builder.build(result)
    if not (changed or deleted or refilled):
        return result
    _check_trace(objects, chain(changed, (i for i, _ in deleted), (i for i, _ in refilled)))
    # One call of C, so that neither an interrupt nor another thread comes between two changes.
    sets = map(object.__setattr__, [objects[i] for i in changed], json.loads(names), values)
    deletes = map(object.__delattr__, [objects[i] for i, _ in deleted], [name for _, name in deleted])
    deque[None](chain(sets, deletes), 0)
    for index, contents in refilled:
        functions = REGISTERED[type(objects[index])]
        functions.clear(objects[index])
        functions.init(objects[index], contents.items())
    return result


def _check_trace(objects: list[Any], changed: Iterable[int]) -> None:
    now = tracers.current_jax_trace()
    for index in changed:
        owner = objects[index]
        state = owner._trace_state if issubclass(type(owner), Variable) else getattr(owner, STATE, None)
        if state is not None and getattr(state, "_trace_state", state)._jax_trace != now:
            refuse_change(owner)
