"""What a static value holds, and whether each call may have the same one where a body has made it."""

import datetime
import decimal
import fractions
import functools
import re
import types
import uuid
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, NamedTuple

import numpy as np

from partax import _core
from partax._guards.bytecode import cell_uses
from partax._guards.constants import PLAIN, compares_as, is_constant
from partax._guards.pure import is_pure
from partax._guards.shown import how_shown
from partax._guards.type_traits import facts
from partax._guards.user_objects import read
from partax._guards.walk import STATE

CONSTANT, CHANGES, USED_UP = range(3)
"""What never changes by itself, or is made anew for each call; what can be changed; what is used up by a reader."""

# Of Python, without state of their own that could change, or that would be another's.
_UNCHANGING = {
    *(range, decimal.Decimal, fractions.Fraction, uuid.UUID, re.Pattern, types.UnionType, types.GenericAlias),
    *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone),
}
COPIED = (list, dict, set, bytearray)
_CONTAINERS = (*COPIED, tuple, frozenset)
_NOTHING: Any = object()


class Held(NamedTuple):
    """What a value is by itself, and what it holds."""

    sort: int
    items: tuple[Any, ...] = ()
    is_opaque: bool = False  # nobody can tell what it holds
    is_copied: bool = False  # with the lists, dicts, sets and bytearrays in it, for each call


FIXED = Held(CONSTANT)
"""Of a value of which two equal ones are one object, or it makes no difference whether they are."""


def held_by(value: Any) -> Held:
    """What a static value is, and what it holds; not what that holds in turn."""
    cls: Any = type(value)
    if issubclass(cls, type) or id(cls) in PLAIN or is_constant(value):
        return FIXED
    if cls in _UNCHANGING or issubclass(cls, np.dtype) or (callable(value) and is_pure(value)):
        return FIXED
    if isinstance(value, (Iterator, Coroutine, AsyncGenerator)):
        return Held(USED_UP)
    known = facts(cls)
    if cls in _CONTAINERS:
        return Held(CONSTANT, _items(value), is_copied=cls is not frozenset)
    if isinstance(value, types.FunctionType):
        return _held_by_function(value)
    if isinstance(value, types.MethodType):
        return Held(CONSTANT, (value.__func__, value.__self__))
    if isinstance(value, functools.partial):
        return Held(CONSTANT, (value.func, *value.args, *value.keywords.values(), *value.__dict__.values()))
    if known.frozen:
        _, content, *attributes = _core.parts_of(value, STATE, None, _NOTHING)
        names = set(attributes[::2])
        is_copied = names <= {*(known.compared or ())} if content is _NOTHING else compares_as(cls, tuple) and not names
        held = tuple(it for it in (content, *attributes[1::2]) if it is not _NOTHING)
        return Held(CONSTANT, held, is_copied=is_copied)
    if cls is object:
        return Held(CONSTANT)
    asked = how_shown(cls)
    if asked is not None:
        told = asked[0](value)
        return Held(CONSTANT, _items(told) if type(told) in _CONTAINERS else (told,))
    return Held(CONSTANT if callable(value) else CHANGES, is_opaque=True)


def _items(container: Any) -> tuple[Any, ...]:
    return (*container, *container.values()) if isinstance(container, dict) else tuple(container)


def _held_by_function(function: types.FunctionType) -> Held:
    cells = [read(cell, "cell_contents") for cell in function.__closure__ or ()]  # None of an empty one
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    can_change = bool(cell_uses(function.__code__).assigned) or any(type(cell) in COPIED for cell in cells)
    return Held(CHANGES if can_change else CONSTANT, (*cells, *defaults, *function.__dict__.values()))
