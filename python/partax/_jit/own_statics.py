"""What of a result came in with the call, what else it holds, and whether each call may have the same."""

import datetime
import decimal
import fractions
import functools
import re
import types
import uuid
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from partax import _core
from partax._guards.bytecode import cell_uses
from partax._guards.constants import PLAIN, compares_as
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
    jax.tree_util.PyTreeDef,
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
    if issubclass(cls, type) or id(cls) in PLAIN:
        return FIXED
    known = facts(cls)
    if known.constant or known.enum or (cls is tuple and all(held_by(item) is FIXED for item in value)):
        return FIXED
    if cls in _UNCHANGING or issubclass(cls, np.dtype) or (callable(value) and is_pure(value)):
        return FIXED
    if isinstance(value, (Iterator, Coroutine, AsyncGenerator)):
        return Held(USED_UP)
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
        try:
            told = asked(value)
        except TypeError:  # of what nobody can prove
            return Held(CONSTANT, is_opaque=True)
        return Held(CONSTANT, _items(told) if type(told) in _CONTAINERS else (told,))
    return Held(CONSTANT if callable(value) else CHANGES, is_opaque=True)


def _items(container: Any) -> tuple[Any, ...]:
    return (*container, *container.values()) if isinstance(container, dict) else tuple(container)


def _held_by_function(function: types.FunctionType) -> Held:
    cells = [read(cell, "cell_contents") for cell in function.__closure__ or ()]  # None of an empty one
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    can_change = bool(cell_uses(function.__code__).assigned) or any(type(cell) in COPIED for cell in cells)
    return Held(CHANGES if can_change else CONSTANT, (*cells, *defaults, *function.__dict__.values()))


_STORED = -1
_MOST_LEVELS = 100


class _Given:
    """Where each object that came in with a call is: as a value itself, or inside of values."""

    def __init__(self, given: tuple[Any, ...]) -> None:
        self._count = len(given)
        self._held = [held_by(value) for value in given]  # which keeps what is made for it, and so its ids
        self._whole: dict[int, list[int]] = {}
        self._inside: dict[int, set[int]] = {}
        self._same_items: dict[tuple[int, ...], int] = {}
        for index, value in enumerate(given):
            if value is None:
                continue
            self._whole.setdefault(id(value), []).append(index)
            if type(value) is tuple:
                self._same_items.setdefault(tuple(map(id, value)), index)
            self._look_into(value, self._held[index], index, 0)

    def _look_into(self, value: Any, held: Held, index: int, depth: int) -> None:
        if isinstance(value, (set, frozenset)) or depth > _MOST_LEVELS:
            return  # nothing tells which of the items of a set a body has taken
        for item in held.items:
            inner = held_by(item)
            if inner is FIXED or index in (places := self._inside.setdefault(id(item), set())):
                continue
            places.add(index)
            self._held.append(inner)
            self._look_into(item, inner, index, depth + 1)

    def index_of(self, value: Any) -> int:
        """Of the first value that is this object, or of a tuple of the same objects; `_STORED` if there is none."""
        found = self._whole.get(id(value))
        if found is None:
            return self._same_items.get(tuple(map(id, value)), _STORED) if type(value) is tuple else _STORED
        return found[0]

    def twins(self, value: Any) -> list[int]:
        """Of the values that are this object."""
        return self._whole.get(id(value), [])

    def holders(self, value: Any) -> set[int]:
        """Of the values that this object is inside of. None of a function that is a value too: keys and guards see to
        it that both are one object in each call.
        """
        is_known = isinstance(value, types.FunctionType) and id(value) in self._whole
        return set() if is_known else self._inside.get(id(value), set())

    def all(self) -> set[int]:
        """Of all values that are not fixed."""
        return {index for index in range(self._count) if self._held[index] is not FIXED}


def find_own_statics(
    given: tuple[Any, ...], returned: tuple[Any, ...], aux_data: tuple[int, ...] = ()
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...], bool, int]:
    """Finds what of the static values in a result came in with the call. Called by C++ after a trace.

    Both have None for what is no object of the call; `aux_data` are those of a result that functions give for its
    nodes. Gives for each value of the result which of those that came in it is, or -1; which of them other values of
    the result hold, or hold a part of: the result serves calls with these very objects; pairs of them that are one
    object where the body may have meant either; whether the result holds what can be changed, and so serves no other
    call; the index of a value that is used up by its first reader, or -1.
    """
    known = _Given(given)
    sources = list[int]()
    held, alike = set[int](), set[tuple[int, int]]()
    of_one_call, used_up = False, -1
    for place, value in enumerate(returned):
        index = known.index_of(value)
        sources.append(index)
        found = held_by(value)
        if found is FIXED:
            continue
        if index != _STORED:
            alike.update((index, twin) for twin in known.twins(value) if twin != index)
            if inside := known.holders(value):
                held |= {index, *inside}
        elif place not in aux_data:
            sort = _look(value, found, known, held, 0, is_copied=True)
            of_one_call = of_one_call or sort == CHANGES
            used_up = place if sort == USED_UP else used_up
    return tuple(sources), tuple(sorted(held)), tuple(sorted(alike)), of_one_call, used_up


def _look(value: Any, found: Held, known: _Given, held: set[int], depth: int, *, is_copied: bool) -> int:
    """Which sort of value this is with all that it holds; adds what of the call's is in it to `held`."""
    if found is FIXED:
        return CONSTANT
    if depth > _MOST_LEVELS:
        return CHANGES
    places = (*known.twins(value), *known.holders(value))
    if places:
        held.update(places)
        return CONSTANT  # the call's own
    if type(value) in COPIED and not is_copied:
        return CHANGES
    if found.is_opaque:
        held |= known.all()
    are_copied = is_copied and found.is_copied
    sorts = (_look(item, held_by(item), known, held, depth + 1, is_copied=are_copied) for item in found.items)
    return max((found.sort, *sorts))
