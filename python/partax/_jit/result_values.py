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
from partax._guards.constants import PLAIN, is_constant
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
_COPIED = (list, dict, set, bytearray)
_CONTAINERS = (*_COPIED, tuple, frozenset)
_NOTHING: Any = object()


class Held(NamedTuple):
    """What a value is by itself, and what it holds."""

    sort: int
    items: tuple[Any, ...] = ()
    is_opaque: bool = False  # nobody can tell what it holds


FIXED = Held(CONSTANT)
"""Of a value of which two equal ones are one object, or it makes no difference whether they are."""


def held_by(value: Any) -> Held:
    """What a static value is, and what it holds; not what that holds in turn."""
    cls: Any = type(value)
    if issubclass(cls, type) or id(cls) in PLAIN or is_constant(value):
        return FIXED
    if cls in _UNCHANGING or issubclass(cls, np.dtype) or (callable(value) and is_pure(value)):
        return FIXED
    if isinstance(value, slice):
        return Held(CONSTANT, (value.start, value.stop, value.step))
    if isinstance(value, (Iterator, Coroutine, AsyncGenerator)):
        return Held(USED_UP)
    known = facts(cls)
    if known.enum:
        return FIXED
    content: Any = value if known.equal_by is None else dict(read(value, known.equal_by, {}))
    if type(content) in _CONTAINERS:
        return Held(CONSTANT, (*content, *content.values()) if isinstance(content, dict) else tuple(content))
    if isinstance(value, types.FunctionType):
        return _held_by_function(value)
    if isinstance(value, types.MethodType):
        return Held(CONSTANT, (value.__func__, value.__self__))
    if isinstance(value, functools.partial):
        return Held(CONSTANT, (value.func, *value.args, *value.keywords.values(), *value.__dict__.values()))
    if known.frozen:
        _, content, *attributes = _core.parts_of(value, STATE, None, _NOTHING)
        return Held(CONSTANT, tuple(it for it in (content, *attributes[1::2]) if it is not _NOTHING))
    if cls is object:
        return Held(CONSTANT)
    is_callable = callable(value) or how_shown(cls) is not None
    return Held(CONSTANT if is_callable else CHANGES, is_opaque=True)


def _held_by_function(function: types.FunctionType) -> Held:
    cells = [_content(cell) for cell in function.__closure__ or ()]
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    can_change = bool(cell_uses(function.__code__).assigned) or any(type(cell) in _COPIED for cell in cells)
    return Held(CHANGES if can_change else CONSTANT, (*cells, *defaults, *function.__dict__.values()))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None
