"""What of a result each call gives its own objects for: static values that came in with it, or are inside of such."""

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from partax import _core
from partax._statics.code_reads import PLAIN, STATE

# A value that came in, and which item of which item of it.
_Place = tuple[int, tuple[int, ...]]

_MOST_LEVELS = 100
_NOTHING: Any = object()  # stands for an attribute that is not there, and for no other object


class _Own:
    """Stands in a value for something that each call gives its own object for.

    It can be called, as what a partial is of must be.
    """

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("partax: a placeholder was called")


class _OwnStatics:
    """Where each object that came in with a call is, and which of them are in the result."""

    def __init__(self, given: tuple[Any, ...]) -> None:
        self._known: dict[int, _Place] = {}
        self.found: dict[_Place, int] = {}
        self.used = 0
        for i, value in enumerate(given):
            if value is not None:
                self._known.setdefault(id(value), (i, ()))
        for i, value in enumerate(given):
            self._add_inner(value, i, ())

    def _add_inner(self, value: Any, i: int, path: tuple[int, ...]) -> None:
        if len(path) >= _MOST_LEVELS or id(type(value)) in PLAIN:
            return
        if isinstance(value, (set, frozenset)):
            return  # its items have no places: equal sets may have them in another order
        for item, inner in enumerate(_core.items_of(value, _NOTHING)):
            place = (i, (*path, item))
            is_plain = inner is _NOTHING or id(type(inner)) in PLAIN
            if not is_plain and self._known.setdefault(id(inner), place) is place:
                self._add_inner(inner, *place)

    def index_of(self, value: Any) -> int:
        place = self._known.get(id(value))
        return -1 if place is None else self.found.setdefault(place, len(self.found))

    def placeholder(self, value: Any) -> Any:
        index = -1 if id(type(value)) in PLAIN else self.index_of(value)
        self.used += index >= 0
        return _NOTHING if index < 0 else _Own(index)


def find_own_statics(
    given: tuple[Any, ...], returned: tuple[Any, ...]
) -> tuple[tuple[_Place, ...], tuple[tuple[int, Any], ...]]:
    """Finds what of the static values in a result came in with the call. Called by C++ after a trace.

    Args:
      given: the static values that came in, with None for those that are no object of the call.
      returned: those of the result, likewise.

    Returns:
      Where what each call gives its own objects for is. And for each value of the result which of these it is, or -1;
      or -2 and a template: the value with a placeholder for each of these that is inside of it.
    """
    own = _OwnStatics(given)
    sources = list[tuple[int, Any]]()
    for value in returned:
        index, before, template = own.index_of(value), own.used, None
        if index < 0 and id(type(value)) not in PLAIN:
            template = _rebuilt(value, own.placeholder, _MOST_LEVELS)
        sources.append((index, None) if own.used == before else (-2, template))
    return tuple(own.found), tuple(sources)


def filled(template: Any, own: tuple[Any, ...]) -> Any:
    """The value of which a template was made, with a call's own objects in it."""
    return _rebuilt(template, lambda it: own[it.index] if type(it) is _Own else _NOTHING, _MOST_LEVELS)


def copied(value: Any) -> Any:
    """A value with a copy of each mutable container in it."""
    return _rebuilt(value, lambda _: _NOTHING, sys.getrecursionlimit())


def _rebuilt(value: Any, replacement: Callable[[Any], Any], levels: int) -> Any:
    """The value with other objects in it.

    Args:
      value: of any type.
      replacement: gives the object to take instead of the value, or of an item of it at any level, or `_NOTHING`.
      levels: how deep to look into it.

    Returns:
      The object itself if nothing in it is another. Lists, dicts, sets and bytearrays are always new ones; those of
      subclasses stay.
    """
    other = replacement(value)
    if other is not _NOTHING or levels < 0:
        return value if other is _NOTHING else other
    cls = type(value)
    if cls is bytearray:
        return bytearray(value)
    if cls is dict:
        return {key: _rebuilt(item, replacement, levels - 1) for key, item in value.items()}
    if issubclass(cls, (dict, bytearray)) or (issubclass(cls, (list, set)) and cls not in (list, set)):
        return value
    before = _core.items_of(value, _NOTHING)
    items = [item if item is _NOTHING else _rebuilt(item, replacement, levels - 1) for item in before]
    if cls is list or cls is set:
        return cls(items)
    return value if all(a is b for a, b in zip(before, items, strict=True)) else _made_of(value, items)


def _made_of(value: Any, items: list[Any]) -> Any:
    """An immutable value of the same type with other items."""
    cls = type(value)
    if issubclass(cls, tuple):
        return tuple.__new__(cls, items)
    if cls is frozenset or cls is types.MethodType:
        return frozenset(items) if cls is frozenset else types.MethodType(*items)
    if cls is functools.partial:
        function, args, *values = items
        made = functools.partial(function, *args, **dict(zip(value.keywords, values, strict=True)))
        made.__dict__.update(value.__dict__)
        return made
    if cls.__base__ is not object and cls.__new__ is not object.__new__:
        return value  # a dataclass that cannot be made anew
    made = object.__new__(cls)
    for name, item in zip(_core.parts_of(value, STATE, None, _NOTHING)[2::2], items, strict=True):
        if item is not _NOTHING:
            object.__setattr__(made, name, item)
    return made
