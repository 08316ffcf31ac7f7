"""Copies of static values, with some of the objects in them replaced."""

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from partax import _core
from partax._guards.guards import STATE

NOTHING: Any = object()  # stands for an attribute that is not there, and for no other object


def copied(value: Any) -> Any:
    """A value with a copy of each mutable container in it."""
    return rebuilt(value, lambda _: NOTHING, sys.getrecursionlimit())


def rebuilt(value: Any, replacement: Callable[[Any], Any], levels: int) -> Any:
    """The value with other objects in it.

    Args:
      value: of any type.
      replacement: gives the object to take instead of the value, or of an item of it at any level, or `NOTHING`.
      levels: how deep to look into it.

    Returns:
      The object itself if nothing in it is another. Lists, dicts, sets and bytearrays are always new ones; those of
      subclasses stay.
    """
    other = replacement(value)
    if other is not NOTHING or levels < 0:
        return value if other is NOTHING else other
    cls = type(value)
    if cls is bytearray:
        return bytearray(value)
    if cls is dict:
        return {key: rebuilt(item, replacement, levels - 1) for key, item in value.items()}
    if issubclass(cls, (dict, bytearray)) or (issubclass(cls, (list, set)) and cls not in (list, set)):
        return value
    before = _core.items_of(value, NOTHING)
    items = [item if item is NOTHING else rebuilt(item, replacement, levels - 1) for item in before]
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
    for name, item in zip(_core.parts_of(value, STATE, None, NOTHING)[2::2], items, strict=True):
        if item is not NOTHING:
            object.__setattr__(made, name, item)
    return made
