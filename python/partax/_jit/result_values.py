"""What a static value is that a body has made: whether each call may have the same one."""

import functools
import types
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any

from partax import _core
from partax._guards.bytecode import written_cells
from partax._guards.constants import PLAIN, is_constant
from partax._guards.guards import STATE
from partax._guards.pure import is_pure
from partax._guards.shown import how_shown
from partax._guards.type_traits import facts
from partax._guards.user_objects import read

CONSTANT, MAY_HOLD, CHANGES, USED_UP = range(4)
"""A constant; what never changes, but may hold an object of the call's; what can be changed; what is used up."""

_COPIED = (list, dict, set, bytearray)
_CONTAINERS = (*_COPIED, tuple, frozenset)
_MOST_LEVELS = 100
_NOTHING: Any = object()


def sort_of(value: Any, given: frozenset[int], depth: int = 0) -> int:
    """Which of these a value is, with all that it holds.

    Args:
      value: a static value of a result that did not come in.
      given: the ids of the static values that came in.
      depth: inside of how many others it is.
    """
    cls = type(value)
    if issubclass(cls, type) or id(cls) in PLAIN or is_constant(value) or cls is _core.Targets:
        return CONSTANT
    if callable(value) and is_pure(value):
        return CONSTANT
    if depth > 0 and id(value) in given:
        return MAY_HOLD  # the call's own
    if depth > _MOST_LEVELS:
        return CHANGES
    if isinstance(value, (Iterator, Coroutine, AsyncGenerator)):
        return USED_UP
    known = facts(cls)
    if known.enum:
        return CONSTANT
    content: Any = value if known.equal_by is None else dict(read(value, known.equal_by, {}))
    if type(content) in _CONTAINERS:
        items = (*content, *content.values()) if isinstance(content, dict) else content
        return max((sort_of(item, given, depth + 1) for item in items), default=CONSTANT)
    held = _held(value)
    found = CHANGES if held is None else MAY_HOLD
    return max((found, *(sort_of(item, given, depth + 1) for item in held or ())))


def _held(value: Any) -> tuple[Any, ...] | None:
    """What a value holds that never changes itself; None of any other."""
    cls: Any = type(value)
    if cls is types.FunctionType:
        cells = [_content(cell) for cell in value.__closure__ or ()]
        if any(written_cells(value.__code__)) or any(type(cell) in _COPIED for cell in cells):
            return None
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        return (*cells, *defaults, *value.__dict__.values())
    if cls is types.MethodType:
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, *value.args, *value.keywords.values(), *value.__dict__.values()
    known = facts(cls)
    if known.frozen:
        return tuple(it for it in _core.parts_of(value, STATE, None, _NOTHING)[3::2] if it is not _NOTHING)
    return () if cls is object or callable(value) or how_shown(cls) is not None else None


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None
