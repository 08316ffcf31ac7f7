"""Changes of nnx objects by a function that gets copies of them: the caller's objects would stay unchanged."""

import sys
from collections.abc import Collection, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax

from partax import _core

STATE = "_pytree__state"  # the trace that an object was made in
_VALUE = "_raw_value"

DELETED: Any = type("DELETED", (), {})
"""The value of an attribute that is gone."""


class Seen(NamedTuple):
    """An nnx object in the arguments of a traced function: its path, and its parts."""

    path: str
    object: Any
    contents: dict[str, Any]


class Change(NamedTuple):
    """A changed attribute of an nnx object, `number` in the order of the watched objects."""

    path: str
    number: int
    object: Any
    name: str
    value: Any
    before: Any = None  # also if it was not there

    @property
    def is_value(self) -> bool:  # of a Variable
        return self.name == _VALUE


makes_changes: ContextVar[bool] = ContextVar("changes of nnx objects are made", default=False)
"""Whether the function under way is one of `partax.nnx.jit`, or a step that changes objects in place."""


def call_watched(call: _core.Call, fun: Any, values: tuple[Any, ...]) -> Any:
    names = call.shape.value_names
    nnx_objects(zip(names, call.values, strict=True), "filter_jit")
    seen = watch_named(zip(names, values, strict=True))
    result = call.shape.call(fun, values)
    refuse_lost(seen, result)
    return result


def watch_named(values: Iterable[tuple[str, Any]]) -> list[Seen]:
    return [Seen(path, owner, _contents(owner)) for path, owner in nnx_objects(values)]


def nnx_objects(values: Iterable[tuple[str, Any]], transformation: str | None = None) -> list[tuple[str, Any]]:
    """Return the nnx objects in named values with their paths, each once, except those in a State, which a function may
    change. Raise a ValueError for an object in two places if `transformation` would split it.
    """
    places: dict[int, str] = {}
    objects: list[tuple[str, Any]] = []
    nnx = sys.modules.get("flax.nnx")
    for name, value in values if hasattr(nnx, "Pytree") else ():
        for path, owner in _objects(nnx, value, name, places.keys()):
            first = places.setdefault(id(owner), path)
            if first is path:
                objects.append((path, owner))
            elif transformation is not None:
                raise ValueError(
                    f"`{path}`: found the `{type(owner).__name__}` that is `{first}` too, expected each nnx object in "
                    f"one place, since {transformation} would make two of it; use `partax.nnx.jit` and the "
                    "transformations of `flax.nnx`, which keep it one"
                )
    return objects


def refuse_lost(
    watched: list[Seen],
    result: Any,
    function: str = "the function",
    remedy: str = "use `partax.nnx.jit`, which changes the caller's objects in place, or return the object",
) -> None:
    """Raise if the function has changed an nnx object and does not return the change."""
    every = list(changes(watched))
    if not every:
        return
    returned = set(map(id, jax.tree.leaves(result)))
    returned |= {id(owner) for _, owner in nnx_objects([("the result", result)])}
    for change in every:
        is_returned = change.is_value and {id(leaf) for leaf in jax.tree.leaves(change.value)} <= returned
        if not is_returned and id(change.object) not in returned:
            raise ValueError(
                f"`{change.path}`: {function} has changed this of an nnx object, and the caller's would stay as it is; "
                f"{remedy}"
            )


def changes(watched: list[Seen]) -> Iterator[Change]:
    """Where nnx objects consist of something else since then."""
    for number, (path, owner, before) in enumerate(watched):
        now = _contents(owner)
        for name in (*now, *(before.keys() - now.keys())):
            if name in before and name in now:
                old, new = before[name], now[name]
                if old is new or (_core.node_kind(new) == "static_leaf" and _core.static_equal(old, new)):
                    continue
            yield Change(path if name == _VALUE else f"{path}.{name}", number, owner, name, now.get(name, DELETED))


def make_change(original: Any, name: str, value: Any) -> None:
    if name == _VALUE:
        original.set_raw_value(value)
    elif value is DELETED:
        delattr(original, name)
    else:
        setattr(original, name, value)


def can_make(change: Change, watched: list[Seen]) -> bool:
    """Whether it is the value of a Variable, or an attribute that is none of the objects that there were."""
    nnx, cls = sys.modules["flax.nnx"], type(change.object)
    if change.is_value:
        return True
    if not issubclass(cls, nnx.Pytree) or issubclass(cls, nnx.List):
        return False
    before = {id(one.object) for one in watched}
    return not any(id(owner) in before for _, owner in nnx_objects([("", change.value)]))


def _contents(owner: Any) -> dict[str, Any]:
    if hasattr(type(owner), _VALUE):
        return {_VALUE: getattr(owner, _VALUE), **owner._var_metadata}
    return {name: value for name, value in vars(owner).items() if name not in (STATE, "_pytree__nodes")}


def _objects(nnx: Any, value: Any, path: str, met: Collection[int]) -> Iterator[tuple[str, Any]]:
    """Each object before what is in it; one of `met` without that."""

    def is_leaf(node: Any) -> bool:
        bases = type(node).__mro__  # which no abstract class has to be asked for
        return nnx.Variable in bases or nnx.Pytree in bases or nnx.State in bases

    def is_object(node: Any) -> bool:
        return is_leaf(node) and nnx.State not in type(node).__mro__

    leaves = {"": value}
    if not is_object(value):
        if not any(map(is_object, _core.tree_flatten(value, is_leaf)[0])):
            return
        leaves = _core.flat_partition(value, (is_object,), None, False, is_leaf, path)[1]
    for inner, leaf in leaves.items():
        here = path + inner
        is_new = id(leaf) not in met
        yield here, leaf
        if is_new and nnx.Pytree in type(leaf).__mro__:
            is_list = nnx.List in type(leaf).__mro__
            for name in sorted(vars(leaf).keys() - {STATE}, key=str):
                yield from _objects(nnx, vars(leaf)[name], f"{here}[{name}]" if is_list else f"{here}.{name}", met)
