"""Calls that change nnx objects in their arguments: shardings, changes and errors."""

import contextlib
import dataclasses
import enum
import inspect
import itertools
import json
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from flax import errors
from flax.nnx import extract, graphlib
from flax.nnx.transforms.compilation import StateSharding

from partax import _core
from partax._jit.at_work import during
from partax._jit.lost_changes import DELETED, Change, makes_changes
from partax._jit.shardings import PrefixOfValue, is_sharding_leaf, leaf_in_shardings
from partax._libraries.flax import graph
from partax._libraries.flax.find_changes import Snapshot
from partax._libraries.flax.graph import Variable, is_object


@dataclasses.dataclass(frozen=True)
class _ByPath(PrefixOfValue):
    """A prefix of each value by the paths of its Variables: an `nnx.StateSharding`, or the function of what
    `nnx.prefix(..., graph=True)` returns.
    """

    mapping: Any

    def sharding(self, path: Any, variable: Any) -> Any:
        return getattr(self.mapping, "map_prefix", self.mapping)(path, variable)

    def of(self, value: Any) -> Any:
        def sharding(path: Any, leaf: Any) -> Any:
            return self.sharding(graphlib.jax_to_nnx_path(path), leaf) if isinstance(leaf, Variable) else None

        return jax.tree_util.tree_map_with_path(sharding, value, is_leaf=lambda leaf: isinstance(leaf, Variable))


def prefix_of(shardings: Any) -> Any:
    """The shardings of nnx in the terms of filter_jit."""

    def convert(part: Any) -> Any:
        mapping = part.prefix_fn.value if isinstance(part, extract.TreeState) else part
        if mapping is not part and not callable(mapping):
            raise ValueError("found a `TreeState` as a prefix, expected what `nnx.prefix(tree, ..., graph=True)` gives")
        return _ByPath(mapping) if isinstance(part, kinds) else part

    kinds = (StateSharding, extract.TreeState)
    return jax.tree.map(convert, shardings, is_leaf=lambda part: isinstance(part, kinds) or is_sharding_leaf(part))


def refuse_unlike(in_shardings: Any, values: dict[str, Any]) -> None:
    """Raise if one Variable is in two places of the arguments, passed by name, that have two shardings."""
    first_places: dict[int, tuple[str, Any]] = {}
    is_tuple = isinstance(in_shardings, tuple) and not is_sharding_leaf(in_shardings)
    prefixes = in_shardings if is_tuple else itertools.repeat(in_shardings)
    for prefix, (name, value) in zip(prefixes, values.items(), strict=False):
        leaves = jax.tree_util.tree_leaves_with_path(value, is_leaf=is_object)
        entries = extract.broadcast_prefix(prefix, value, prefix_is_leaf=is_sharding_leaf, tree_is_leaf=is_object)
        for (path, leaf), entry in zip(leaves, entries, strict=True):
            for steps, variable in graphlib.iter_graph(leaf, graph=True) if is_object(leaf) else ():
                if not isinstance(variable, Variable):
                    continue
                sharding = entry.sharding(steps, variable) if isinstance(entry, _ByPath) else entry
                place = name + jax.tree_util.keystr(path) + "".join(_step(step, True) for step in steps)
                first, first_sharding = first_places.setdefault(id(variable), (place, sharding))
                if first_sharding != sharding:
                    raise ValueError(
                        f"Inconsistent aliasing: `{first}` and `{place}` are one {type(variable).__name__}, found "
                        f"{first_sharding} and {sharding} for them in in_shardings, expected the same for both"
                    )


def constrained(value: Any, before: Any, by_leaf: dict[int, Any]) -> Any:
    """A new value with the shardings of the arrays that were there before."""
    if not by_leaf:
        return value
    shardings = [by_leaf.get(id(leaf)) for leaf in jax.tree.leaves(before)]
    leaves, structure = jax.tree.flatten(value)
    if len(shardings) != len(leaves):
        return value
    pairs = zip(leaves, shardings, strict=True)
    constrain = jax.lax.with_sharding_constraint
    return structure.unflatten([leaf if to is None else constrain(leaf, to) for leaf, to in pairs])


class Outcome(NamedTuple):
    """The result of a traced call, as trees from `GraphReader`. The native wrapper reads the first four fields."""

    result: Any
    values: tuple[Any, ...] = ()  # what attributes are set to
    owners: bytes = b""  # the numbers of their objects, as unsigned ints
    is_plain: bool = True  # whether there are only values of Variables, without objects in them
    names: str = "[]"  # of the attributes, as JSON; like the owners one constant, which no call re-creates
    deleted: tuple[tuple[int, str], ...] = ()  # owners and names of attributes
    has_objects: bool = False  # in any of these
    not_donated: tuple[Any, ...] = ()  # arrays that must not be donated, since objects keep them

    def abstract_result(self, objects: list[Any]) -> Any:
        """The result of a call that has not been run, in which objects of the arguments are copies."""
        if not self.has_objects:
            return self.result
        return apply_changes(self, graphlib.clone(objects, graph=True))


def apply_changes(outcome: Outcome, objects: list[Any]) -> Any:
    """Change all objects of a call's arguments, or none if it raises; return the call's result."""
    result, values, owners, _, names, deleted, has_objects, _ = outcome
    if has_objects:
        builder = graph.GraphBuilder(objects)
        values, result = builder.build(values), builder.build(result)
    # One call of C, so that neither an interrupt nor another thread comes between two changes.
    sets = map(object.__setattr__, [objects[i] for i in array("I", owners)], json.loads(names), values)
    deletes = map(object.__delattr__, [objects[i] for i, _ in deleted], [name for _, name in deleted])
    deque[None](itertools.chain(sets, deletes), 0)
    return result


class GraphMode(enum.Enum):
    """The option `graph` of `filter_jit`: what a call does with nnx objects. The native wrapper calls its methods."""

    GRAPH = "graph"  # all changes are done to the caller's objects
    VARIABLES = "variables"  # only those of Variables
    TREE = "tree"  # nothing may be in two places

    context = enum.nonmember(graphlib.GRAPH_CONTEXT)  # where `nnx.cached_partial` leaves objects for the call

    def read(self, call: _core.Call, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Any]]:
        """Return the values of a call for filter_jit, and the objects in the order of their first places."""
        reader = graph.GraphReader()
        try:
            return tuple([reader.read(value) for value in values]), reader.objects
        except TypeError as error:
            for _, path in _paths(lambda value: type(value) is graph.HIJAX, _named(call, values)):
                error.add_note(f"partax: it is `{path}`")
            raise

    def apply(self, call: _core.Call, values: tuple[Any, ...], outcome: Outcome, objects: list[Any]) -> Any:
        """Change the objects of a call's arguments, which `read` returned, and return the call's result."""
        numbers = [*array("I", outcome.owners), *(i for i, _ in outcome.deleted)]
        foreign = [objects[i] for i in numbers if graph.is_foreign(objects[i])]
        if foreign:
            name = type(foreign[0]).__name__
            error = errors.TraceContextError(f"Cannot mutate '{name}' from different trace level")
            for _, path in _paths(lambda value: id(value) in map(id, foreign), _named(call, values)):
                error.add_note(f"partax: it is `{path}`")
            raise error
        return apply_changes(outcome, objects)

    def trace(self, call: _core.Call, fun: Callable[..., Any], values: tuple[Any, ...]) -> Outcome:
        """Call the user's function in a trace: build its objects from tracers, then read what it changed."""
        options = call.options
        builder = graph.GraphBuilder()
        shardings: dict[int, Any] = {}
        if options.in_shardings is not None:
            leaves = [leaf for value in values for leaf in _core.describe_tree(value, "")[1]]
            shardings = dict(zip(map(id, leaves), leaf_in_shardings(options, call.shape, values), strict=True))
        built = tuple([builder.build(value) for value in values])
        before = Snapshot(builder.objects)
        try:
            if self is GraphMode.TREE:
                extract.check_no_aliases("jit", args=built)
            elif options.in_shardings is not None:
                arguments = itertools.islice(_named(call, built).items(), int(call.shape.has_callable), None)
                refuse_unlike(options.in_shardings, dict(arguments))
            with during(makes_changes, True):
                result = call.shape.call(fun, built)
            changes = before.changes()
            if self is not GraphMode.GRAPH:
                variables = [owner for owner in before.objects if issubclass(type(owner), graph.Variable)]
                # A graph may have a Variable twice.
                out = result if self is GraphMode.TREE else extract.to_tree2(result)
                extract.check_no_aliases("jit", args=variables, out=out, check=["out"])
                changes = [change for change in changes if issubclass(type(change.object), graph.Variable)]
            return _outcome(result, changes, before, options.donate != "none", shardings)
        except (errors.TraceContextError, ValueError) as error:
            if "trace level" in str(error):
                name = getattr(fun, "__qualname__", type(fun).__qualname__)
                with contextlib.suppress(TypeError, ValueError):  # of what is not a function of Python
                    variables = inspect.getclosurevars(fun)
                    for root, _ in _paths(graph.is_foreign, {**variables.globals, **variables.nonlocals}):
                        error.add_note(f"partax: `{root}` is not an argument of `{name}`: pass it as one")
            raise


def _named(call: _core.Call, values: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(call.shape.value_names, values, strict=True))


def _outcome(result: Any, changes: list[Change], before: Snapshot, donates: bool, shardings: dict[int, Any]) -> Outcome:
    reader = graph.GraphReader(before.objects)
    sets = [change for change in changes if change.value is not DELETED]
    names = [change.name for change in sets]
    values = tuple([reader.read(constrained(change.value, change.before, shardings)) for change in sets])
    deleted = tuple([(change.number, change.name) for change in changes if change.value is DELETED])
    result = reader.read(result)
    returned = {id(leaf) for leaf in jax.tree.leaves((result, values))}
    unchanged = before.unchanged(changes) if donates else []
    not_donated = {id(array): array for array in unchanged if id(array) not in returned}
    return Outcome(
        result,
        values,
        owners=array("I", [change.number for change in sets]).tobytes(),
        is_plain=not (reader.has_met_any or deleted) and {*names} <= {"_raw_value"},
        names=json.dumps(names),
        deleted=deleted,
        has_objects=reader.has_met_any,
        not_donated=tuple(not_donated.values()),
    )


def _paths(is_named: Callable[[Any], bool], roots: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The names of the roots with an object that is to be named, and the path of the first one."""
    for name, root in roots.items():
        places = [(path, value) for path, value in graphlib.iter_graph(root, graph=True) if is_object(value)]
        nodes = {path for path, _ in places}
        path = next((path for path, value in places if is_named(value)), None)
        if path is not None:
            yield name, name + "".join(_step(part, path[:i] in nodes) for i, part in enumerate(path))


def _step(part: Any, is_attribute: bool) -> str:
    return f".{part}" if is_attribute and isinstance(part, str) else f"[{part!r}]"
