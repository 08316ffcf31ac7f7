"""What a call that changes nnx objects in its arguments has Python do, and where in them what nnx refuses is."""

import inspect
import json
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from types import TracebackType
from typing import Any, NamedTuple

import jax
from flax import errors
from flax.nnx import extract, graphlib, tracers

from partax import _core
from partax._jit.options import Options
from partax._jit.parameters import value_names
from partax._libraries.flax import graph
from partax._libraries.flax.find_changes import DELETED, WHOLE_NODE, Change, Snapshot
from partax._libraries.flax.shardings import as_before, refuse_unlike, shardings_by_leaf


class Outcome(NamedTuple):
    """What a traced call gives: trees as `GraphReader` makes them, with the objects of the arguments as `Seen`. The
    native wrapper reads the first four fields.
    """

    result: Any
    values: tuple[Any, ...] = ()  # what attributes are set to
    owners: bytes = b""  # the numbers of the objects that these are of, as an array of unsigned ints has them in memory
    is_plain: bool = True  # whether this is all, and all of it are values of Variables without objects in them
    names: str = "[]"  # of the attributes, as JSON; like the owners one constant, which no call makes anew
    deleted: tuple[tuple[int, str], ...] = ()  # owners and names of attributes
    refilled: tuple[tuple[int, Any], ...] = ()  # nodes of which nnx knows only how to fill them, and with what
    has_objects: bool = False  # in any of these
    kept: tuple[Any, ...] = ()  # arrays that must not be donated, since objects keep them

    def abstract_result(self, objects: list[Any]) -> Any:
        """The result of a call that has not been run, in which objects of the arguments are copies."""
        if not self.has_objects:
            return self.result
        return apply_changes(self, graphlib.clone(objects, graph=True))


def apply_changes(outcome: Outcome, objects: list[Any]) -> Any:
    """Changes the objects of a call's arguments, all of them or, if it raises, none; gives the call's result."""
    result, values, owners, _, names, deleted, refilled, has_objects, _ = outcome
    changed = array("I", owners)
    if has_objects:
        builder = graph.GraphBuilder(objects)
        values, refilled, result = builder.build(values), builder.build(refilled), builder.build(result)
    if not (changed or deleted or refilled):
        return result
    _check_trace(objects, chain(changed, (i for i, _ in deleted), (i for i, _ in refilled)))
    # One call of C, so that neither an interrupt nor another thread comes between two changes.
    sets = map(object.__setattr__, [objects[i] for i in changed], json.loads(names), values)
    deletes = map(object.__delattr__, [objects[i] for i, _ in deleted], [name for _, name in deleted])
    deque[None](chain(sets, deletes), 0)
    for index, contents in refilled:
        functions = graph.REGISTERED[type(objects[index])]
        functions.clear(objects[index])
        functions.init(objects[index], contents.items())
    return result


def _check_trace(objects: list[Any], changed: Iterable[int]) -> None:
    now = tracers.current_jax_trace()
    for index in changed:
        value = objects[index]
        state = value._trace_state if issubclass(type(value), graph.Variable) else getattr(value, graph.STATE, None)
        if state is not None and getattr(state, "_trace_state", state)._jax_trace != now:
            raise errors.TraceContextError(f"Cannot mutate '{type(value).__name__}' from different trace level")


GRAPH, VARIABLES, TREE = "graph", "variables", "tree"
"""All changes are done to the caller's objects; only those of Variables; and nothing may be in two places."""

_ERRORS: Any = (errors.TraceContextError, TypeError, ValueError)

current_trace = tracers.current_jax_trace

_core.set_variable_slots(*graph.VARIABLE_SLOTS)
if hasattr(*graph.STATIC_CACHE):
    _core.set_static_cache(*graph.STATIC_CACHE)


def read(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Any]]:
    """The values of the call under way as filter_jit takes them, and the objects in the order of their first places."""
    reader = graph.GraphReader()
    try:
        return tuple([reader.read(value) for value in values]), reader.objects
    except _ERRORS as error:
        _note(error, lambda: _named(values))
        raise


def apply(outcome: Outcome, objects: list[Any], values: tuple[Any, ...]) -> Any:
    """Changes the objects of a call's arguments, as `read` has found them, and gives the call's result."""
    try:
        return apply_changes(outcome, objects)
    except _ERRORS as error:
        _note(error, lambda: _named(values))
        raise


def traced(options: Options, fun: Callable[..., Any], values: tuple[Any, ...]) -> Outcome:
    """Calls the user's function in a trace, between the objects that are made of tracers and what it does to them."""
    builder = graph.GraphBuilder()
    shardings: dict[int, Any] = {}
    first = 1 if _core.call_shape()[-1] else 0  # the callable
    if options.in_shardings is not None:
        shardings = shardings_by_leaf(options.in_shardings, values[first:])
    built = tuple([builder.build(value) for value in values])
    before = Snapshot(builder.objects)
    try:
        if options.in_shardings is not None and options.graph != TREE:
            refuse_unlike(options.in_shardings, dict(list(_named(built).items())[first:]))
        if options.graph == TREE:
            extract.check_no_aliases("jit", args=built)
        result = _core.call_body(fun, built)
        changes = before.changes()
        if options.graph != GRAPH:
            variables = [it for it in before.objects if issubclass(type(it), graph.Variable)]
            out = result if options.graph == TREE else extract.to_tree2(result)  # a graph may have a Variable twice
            extract.check_no_aliases("jit", args=variables, out=out, check=["out"])
            changes = [it for it in changes if issubclass(type(it.owner), graph.Variable)]
        return _outcome(result, changes, before, options.donate != "none", shardings)
    except (errors.TraceContextError, ValueError) as error:
        _note_held(error, fun)
        raise


def _named(values: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(value_names(_core.call_shape()), values, strict=True))


def _outcome(result: Any, changes: list[Change], before: Snapshot, donates: bool, shardings: dict[int, Any]) -> Outcome:
    reader = graph.GraphReader(before.objects)
    sets = [it for it in changes if it.value is not DELETED and it.name is not WHOLE_NODE]
    values = tuple([reader.read(as_before(it.value, it.before, shardings) if shardings else it.value) for it in sets])
    refilled = tuple([(it.place, reader.read(it.value)) for it in changes if it.name is WHOLE_NODE])
    deleted = tuple([(it.place, it.name) for it in changes if it.value is DELETED])
    result = reader.read(result)
    given = {id(leaf) for leaf in jax.tree.leaves((result, values, refilled))}
    kept = {id(array): array for array in before.unchanged(changes) if id(array) not in given} if donates else {}
    return Outcome(
        result,
        values,
        array("I", [it.place for it in sets]).tobytes(),
        not (reader.has_met_any or deleted or refilled)
        and {it.name for it in sets} <= {graph.VARIABLE_SLOTS[0].__name__},
        json.dumps([it.name for it in sets]),
        deleted,
        refilled,
        reader.has_met_any,
        tuple(kept.values()),
    )


def _note_held(error: Exception, fun: Callable[..., Any]) -> None:
    """The same of an object that a function holds, and was not given."""
    users = error.__traceback__ and error.__traceback__.tb_next  # the first frame is the one that asks
    name = getattr(fun, "__qualname__", type(fun).__qualname__)
    _note(error, lambda: _held(users, fun), f", which is no argument of `{name}`: pass it as one")


def _note(error: Exception, roots: Callable[[], dict[str, Any]], more: str = "") -> None:
    """Adds to an error on an nnx object where in some values, given by name, that object is."""
    refused = _refused(error)
    path = None if refused is None else _path_of(refused, roots())
    if path is not None:
        error.add_note(f"partax: it is `{path}`{more}")


def _frames(traceback: TracebackType | None) -> Iterator[dict[str, Any]]:
    while traceback is not None:
        yield traceback.tb_frame.f_locals
        traceback = traceback.tb_next


def _refused(error: Exception) -> Any:
    """The object that a refusal is of: what the innermost function was at work on, as this file and nnx call it."""
    found = None
    if "trace level" not in str(error) and "hijax" not in str(error):
        return found
    for variables in _frames(error.__traceback__):
        found = next((variables[name] for name in ("self", "value") if graph.is_object(variables.get(name))), found)
    return found


def _held(traceback: TracebackType | None, fun: Any) -> dict[str, Any]:
    """What a function, and those in which it failed, can name: the closest first."""
    held: dict[str, Any] = {}
    try:
        variables = inspect.getclosurevars(fun)
        held.update({**variables.globals, **variables.nonlocals})
    except (TypeError, ValueError):
        pass
    for variables in _frames(traceback):
        held.update({name: value for name, value in variables.items() if name not in ("self", "value")})
    return held


def _path_of(target: Any, roots: dict[str, Any]) -> str | None:
    for name, root in roots.items():
        if not graph.is_object(root) and not isinstance(root, (list, tuple, dict)):
            continue
        places = list(graphlib.iter_graph(root, graph=True))
        path = next((path for path, value in places if value is target), None)
        if path is not None:
            nodes = {at for at, value in places if graph.is_object(value)}
            return name + "".join(_step(part, path[:i] in nodes) for i, part in enumerate(path))
    return None


def _step(part: Any, is_attribute: bool) -> str:
    return f".{part}" if is_attribute and isinstance(part, str) else f"[{part!r}]"
