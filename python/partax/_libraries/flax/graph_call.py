"""What a call that changes nnx objects in its arguments has Python do: shardings, changes, and what is refused."""

import dataclasses
import enum
import inspect
import json
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, NamedTuple

import jax
from flax import errors
from flax.nnx import extract, graphlib, tracers
from flax.nnx.transforms.compilation import StateSharding

from partax import _core
from partax._jit.lost_changes import make_changes
from partax._jit.shardings import NoEntry, PrefixOfValue, is_sharding_leaf, prefix_for
from partax._libraries.flax import graph
from partax._libraries.flax.find_changes import DELETED, WHOLE_NODE, Change, Snapshot
from partax._libraries.flax.graph import Variable, is_object


class _ByPath(PrefixOfValue):
    """A prefix of each value by the paths of its Variables."""

    def sharding(self, path: Any, variable: Any) -> Any:
        raise NotImplementedError

    def of(self, value: Any) -> Any:
        def sharding(path: Any, leaf: Any) -> Any:
            return self.sharding(graphlib.jax_to_nnx_path(path), leaf) if isinstance(leaf, Variable) else None

        return jax.tree_util.tree_map_with_path(sharding, value, is_leaf=lambda leaf: isinstance(leaf, Variable))


@dataclasses.dataclass(frozen=True)
class _OfFilters(_ByPath):
    filters: StateSharding

    def sharding(self, path: Any, variable: Any) -> Any:
        return self.filters.map_prefix(path, variable)


@dataclasses.dataclass(frozen=True)
class _OfTree(_ByPath):
    """The entries of `nnx.prefix(tree, ..., graph=True)`, which has each Variable once."""

    entries: tuple[tuple[Any, Any], ...]
    of_others: Callable[[Any, Any], Any]

    @classmethod
    def made(cls, tree: Any) -> "_OfTree":
        if not callable(tree.prefix_fn.value):
            raise ValueError("found a `TreeState` as a prefix, expected what `nnx.prefix(tree, ..., graph=True)` gives")
        leaves = jax.tree_util.tree_leaves_with_path(tree.state, is_leaf=is_sharding_leaf)
        entries = tuple([(graphlib.jax_to_nnx_path(path), sharding) for path, sharding in leaves])
        return cls(entries, tree.prefix_fn.value)

    def sharding(self, path: Any, variable: Any) -> Any:
        return next((own for at, own in self.entries if at == path), None) or self.of_others(path, variable)


def prefix_of(shardings: Any) -> Any:

    def own(part: Any) -> Any:
        if isinstance(part, StateSharding):
            return _OfFilters(part)
        return _OfTree.made(part) if isinstance(part, extract.TreeState) else part

    def is_one(part: Any) -> bool:
        return isinstance(part, (StateSharding, extract.TreeState)) or is_sharding_leaf(part)

    return jax.tree.map(own, shardings, is_leaf=is_one)


def refuse_unlike(prefix: Any, values: dict[str, Any]) -> None:
    """Raises where one Variable is in two places of the arguments, given by name, that have two shardings."""
    met: dict[int, tuple[str, Any]] = {}
    for own, (name, value) in zip(_prefixes(prefix, len(values)), values.items(), strict=False):
        leaves = jax.tree_util.tree_leaves_with_path(value, is_leaf=is_object)
        owns = extract.broadcast_prefix(own, value, prefix_is_leaf=is_sharding_leaf, tree_is_leaf=is_object)
        for (path, leaf), of_leaf in zip(leaves, owns, strict=True):
            for steps, variable in graphlib.iter_graph(leaf, graph=True) if is_object(leaf) else ():
                if not isinstance(variable, Variable):
                    continue
                sharding = of_leaf.sharding(steps, variable) if isinstance(of_leaf, _ByPath) else of_leaf
                place = name + jax.tree_util.keystr(path) + "".join(_step(step, True) for step in steps)
                first, first_sharding = met.setdefault(id(variable), (place, sharding))
                if first_sharding != sharding:
                    raise ValueError(
                        f"Inconsistent aliasing: `{first}` and `{place}` are one {type(variable).__name__}, found "
                        f"{first_sharding} and {sharding} for them in in_shardings, expected the same for both"
                    )


def _prefixes(prefix: Any, count: int) -> tuple[Any, ...]:
    if not isinstance(prefix, tuple) or is_sharding_leaf(prefix):
        return (prefix,) * count
    return tuple([None if isinstance(part, NoEntry) else part for part in prefix])


def shardings_by_leaf(prefix: Any, values: tuple[Any, ...]) -> dict[int, Any]:
    by_leaf: dict[int, Any] = {}
    for own, value in zip(_prefixes(prefix, len(values)), values, strict=False):
        pairs = _core.broadcast_prefix(prefix_for(own, value), value, is_sharding_leaf, "", "")
        by_leaf.update({id(leaf): sharding for leaf, sharding in pairs if sharding is not None})
    return by_leaf


def as_before(value: Any, before: Any, by_leaf: dict[int, Any]) -> Any:
    """A new value of something, with the shardings that its arrays had."""
    leaves_before = jax.tree.leaves(before)
    leaves, structure = jax.tree.flatten(value)
    if len(leaves_before) != len(leaves):
        return value
    constrained = [
        leaf if id(old) not in by_leaf else jax.lax.with_sharding_constraint(leaf, by_leaf[id(old)])
        for old, leaf in zip(leaves_before, leaves, strict=True)
    ]
    return structure.unflatten(constrained)


class Outcome(NamedTuple):
    """What a traced call gives: trees as `GraphReader` makes them, with the objects of the arguments as `Seen`. The
    native wrapper reads the first four fields.
    """

    result: Any
    values: tuple[Any, ...] = ()  # what attributes are set to
    owners: bytes = b""  # the numbers of the objects that these are of, as an array of unsigned ints has them in memory
    is_plain: bool = True  # whether this is all, and all of it are values of Variables without objects in them
    names: str = "[]"  # of the attributes, as JSON; like the owners one constant, which no call re-creates
    deleted: tuple[tuple[int, str], ...] = ()  # owners and names of attributes
    refilled: tuple[tuple[int, Any], ...] = ()  # nodes of which nnx knows only how to fill them, and with what
    has_objects: bool = False  # in any of these
    not_donated: tuple[Any, ...] = ()  # arrays that must not be donated, since objects keep them

    @property
    def changed(self) -> list[int]:
        """The numbers of the objects that are changed."""
        return [*array("I", self.owners), *(i for i, _ in self.deleted), *(i for i, _ in self.refilled)]

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
    foreign = _first_foreign(objects, outcome.changed)
    if foreign is not None:
        raise errors.TraceContextError(f"Cannot mutate '{type(foreign).__name__}' from different trace level")
    # One call of C, so that neither an interrupt nor another thread comes between two changes.
    sets = map(object.__setattr__, [objects[i] for i in changed], json.loads(names), values)
    deletes = map(object.__delattr__, [objects[i] for i, _ in deleted], [name for _, name in deleted])
    deque[None](chain(sets, deletes), 0)
    for index, contents in refilled:
        functions = graph.REGISTERED[type(objects[index])]
        functions.clear(objects[index])
        functions.init(objects[index], contents.items())
    return result


def _first_foreign(objects: list[Any], numbers: Iterable[int]) -> Any:
    """The first of some objects that was made in another trace than the current one; None if there is none."""
    now = tracers.current_jax_trace()
    for number in numbers:
        value = objects[number]
        state = value._trace_state if issubclass(type(value), graph.Variable) else getattr(value, graph.STATE, None)
        if state is not None and getattr(state, "_trace_state", state)._jax_trace != now:
            return value
    return None


_ERRORS: Any = (errors.TraceContextError, TypeError, ValueError)

_core.set_variable_slots(*graph.VARIABLE_SLOTS, tracers.current_jax_trace)
if hasattr(*graph.STATIC_CACHE):
    _core.set_static_cache(*graph.STATIC_CACHE)


class GraphMode(enum.Enum):
    """The option `graph` of `filter_jit`: what a call does with nnx objects. The native wrapper calls its methods."""

    GRAPH = "graph"  # all changes are done to the caller's objects
    VARIABLES = "variables"  # only those of Variables
    TREE = "tree"  # nothing may be in two places

    def read(self, call: _core.CallUnderWay, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Any]]:
        """The values of a call as filter_jit takes them, and the objects in the order of their first places."""
        reader = graph.GraphReader()
        try:
            return tuple([reader.read(value) for value in values]), reader.objects
        except _ERRORS as error:
            _note(error, reader.refused, _named(call, values))
            raise

    def apply(self, call: _core.CallUnderWay, outcome: Outcome, objects: list[Any], values: tuple[Any, ...]) -> Any:
        """Changes the objects of a call's arguments, which `read` has given, and gives the call's result."""
        try:
            return apply_changes(outcome, objects)
        except errors.TraceContextError as error:
            _note(error, _first_foreign(objects, outcome.changed), _named(call, values))
            raise

    def trace(self, call: _core.CallUnderWay, fun: Callable[..., Any], values: tuple[Any, ...]) -> Outcome:
        """Calls the user's function in a trace, between the objects that are made of tracers and what it does to
        them.
        """
        options = call.options
        builder = graph.GraphBuilder()
        shardings: dict[int, Any] = {}
        first = int(call.shape.has_callable)
        if options.in_shardings is not None:
            shardings = shardings_by_leaf(options.in_shardings, values[first:])
        built = tuple([builder.build(value) for value in values])
        before = Snapshot(builder.objects)
        reader = graph.GraphReader(before.objects)
        try:
            if options.in_shardings is not None and self is not GraphMode.TREE:
                refuse_unlike(options.in_shardings, dict(list(_named(call, built).items())[first:]))
            if self is GraphMode.TREE:
                extract.check_no_aliases("jit", args=built)
            with make_changes():
                result = call.call(fun, built)
            changes = before.changes()
            if self is not GraphMode.GRAPH:
                variables = [owner for owner in before.objects if issubclass(type(owner), graph.Variable)]
                # A graph may have a Variable twice.
                out = result if self is GraphMode.TREE else extract.to_tree2(result)
                extract.check_no_aliases("jit", args=variables, out=out, check=["out"])
                changes = [change for change in changes if issubclass(type(change.owner), graph.Variable)]
            return _outcome(reader, result, changes, before, options.donate != "none", shardings)
        except (errors.TraceContextError, ValueError) as error:
            _note_held(error, reader.refused, fun)
            raise


def _named(call: _core.CallUnderWay, values: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(call.shape.value_names, values, strict=True))


def _outcome(
    reader: graph.GraphReader,
    result: Any,
    changes: list[Change],
    before: Snapshot,
    donates: bool,
    shardings: dict[int, Any],
) -> Outcome:
    sets = [change for change in changes if change.value is not DELETED and change.name is not WHOLE_NODE]
    new_values = [as_before(change.value, change.before, shardings) if shardings else change.value for change in sets]
    values = tuple([reader.read(value) for value in new_values])
    refilled = tuple([(change.place, reader.read(change.value)) for change in changes if change.name is WHOLE_NODE])
    deleted = tuple([(change.place, change.name) for change in changes if change.value is DELETED])
    result = reader.read(result)
    returned = {id(leaf) for leaf in jax.tree.leaves((result, values, refilled))}
    unchanged = before.unchanged(changes) if donates else []
    not_donated = {id(array): array for array in unchanged if id(array) not in returned}
    return Outcome(
        result,
        values,
        array("I", [change.place for change in sets]).tobytes(),
        not (reader.has_met_any or deleted or refilled)
        and {change.name for change in sets} <= {graph.VARIABLE_SLOTS[0].__name__},
        json.dumps([change.name for change in sets]),
        deleted,
        refilled,
        reader.has_met_any,
        tuple(not_donated.values()),
    )


def _note(error: Exception, refused: Any, roots: dict[str, Any], more: str = "") -> None:
    """Adds to an error on an nnx object where in some values, given by name, that object is."""
    path = None if refused is None else _path_of(refused, roots)
    if path is not None:
        error.add_note(f"partax: it is `{path}`{more}")


def _note_held(error: Exception, refused: Any, fun: Callable[..., Any]) -> None:
    """The same of an object that a function can name, and was not given. Where nnx itself has raised, which does not
    tell the object, those of another trace that the function can name.
    """
    more = f"no argument of `{getattr(fun, '__qualname__', type(fun).__qualname__)}`: pass it as one"
    if refused is not None:
        _note(error, refused, _roots(fun), f", which is {more}")
    elif "trace level" in str(error):
        for name, root in _roots(fun).items():
            if _is_foreign(root):
                error.add_note(f"partax: `{name}` is {more}")


def _roots(fun: Any) -> dict[str, Any]:
    """The objects that a function can name, and the containers that may hold some."""
    try:
        variables = inspect.getclosurevars(fun)
    except (TypeError, ValueError):
        return {}
    roots = {**variables.globals, **variables.nonlocals}
    return {name: value for name, value in roots.items() if is_object(value) or isinstance(value, (list, tuple, dict))}


def _is_foreign(root: Any) -> bool:
    """Whether a value is, or holds, an nnx object of another trace than the current one."""
    objects = [value for _, value in graphlib.iter_graph(root, graph=True) if is_object(value)]
    return _first_foreign(objects, range(len(objects))) is not None


def _path_of(target: Any, roots: dict[str, Any]) -> str | None:
    for name, root in roots.items():
        places = list(graphlib.iter_graph(root, graph=True))
        path = next((path for path, value in places if value is target), None)
        if path is not None:
            nodes = {at for at, value in places if is_object(value)}
            return name + "".join(_step(part, path[:i] in nodes) for i, part in enumerate(path))
    return None


def _step(part: Any, is_attribute: bool) -> str:
    return f".{part}" if is_attribute and isinstance(part, str) else f"[{part!r}]"
