"""What of a result each call gives its own objects for: static values that came in with it, or are inside of such."""

from typing import Any

from partax import _core
from partax._guards.constants import PLAIN, is_constant
from partax._guards.copies import NOTHING, rebuilt
from partax._jit.result_values import CHANGES, CONSTANT, MAY_HOLD, USED_UP, sort_of

# A value that came in, and which item of which item of it.
_Place = tuple[int, tuple[int, ...]]

_MOST_LEVELS = 100


class _Placeholder:
    """Stands in a value for something that each call gives its own object for.

    It can be called, as what a partial is of must be.
    """

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("partax: a placeholder was called")


class _Given:
    """Where each object that came in with a call is, and which of them are in the result."""

    def __init__(self, given: tuple[Any, ...]) -> None:
        self._known: dict[int, _Place] = {}
        self._others: dict[_Place, list[_Place]] = {}
        self.found: dict[_Place, int] = {}
        self.used = 0
        for i, value in enumerate(given):
            if value is not None:
                self._add(value, (i, ()))
        for i, value in enumerate(given):
            self._add_inner(value, i, ())

    def _add_inner(self, value: Any, i: int, path: tuple[int, ...]) -> None:
        if len(path) >= _MOST_LEVELS or id(type(value)) in PLAIN:
            return
        if isinstance(value, (set, frozenset)):
            return  # its items have no places: equal sets may have them in another order
        for item, inner in enumerate(_core.items_of(value, NOTHING)):
            place = (i, (*path, item))
            is_plain = inner is NOTHING or id(type(inner)) in PLAIN
            if not is_plain and self._add(inner, place):
                self._add_inner(inner, *place)

    def _add(self, value: Any, place: _Place) -> bool:
        """Notes where an object is; whether that is its first place."""
        first = self._known.setdefault(id(value), place)
        if first is not place and not is_constant(value):
            self._others.setdefault(first, []).append(place)
        return first is place

    def places(self) -> tuple[tuple[_Place, ...], ...]:
        """Of each object that was found, where it is: the place that results take it from, and the others."""
        return tuple((place, *self._others.get(place, ())) for place in self.found)

    def index_of(self, value: Any) -> int:
        place = self._known.get(id(value))
        return -1 if place is None else self.found.setdefault(place, len(self.found))

    def placeholder(self, value: Any) -> Any:
        index = -1 if id(type(value)) in PLAIN else self.index_of(value)
        self.used += index >= 0
        return NOTHING if index < 0 else _Placeholder(index)


def find_own_statics(
    given: tuple[Any, ...], returned: tuple[Any, ...], aux_data: tuple[int, ...] = ()
) -> tuple[tuple[tuple[_Place, ...], ...], tuple[tuple[int, Any], ...], tuple[bool, bool, int]]:
    """Finds what of the static values in a result came in with the call. Called by C++ after a trace.

    Args:
      given: the static values that came in, with None for those that are no object of the call.
      returned: those of the result, likewise.
      aux_data: which of these are no objects of the result, but what functions give for its nodes.

    Returns:
      Where what each call gives its own objects for is: the place, and others with the same object. And for each value
      of the result which of these it is, or -1; or -2 and a template: the value with a placeholder for each of these
      that is inside of it. And of all others whether one may hold an object of the call's, whether one can be changed,
      and the index of one that is used up by its first reader, or -1.
    """
    known = _Given(given)
    sources = list[tuple[int, Any]]()
    ids, aux = frozenset(map(id, given)), frozenset(aux_data)
    sort, used_up = CONSTANT, -1
    for value in returned:
        index, before, template = known.index_of(value), known.used, None
        if index < 0 and id(type(value)) not in PLAIN:
            template = rebuilt(value, known.placeholder, _MOST_LEVELS)
        sources.append((index, None) if known.used == before else (-2, template))
        if index < 0 and len(sources) - 1 not in aux:
            found = sort_of(value, ids)
            sort = max(sort, found)
            used_up = len(sources) - 1 if found == USED_UP else used_up
    return known.places(), tuple(sources), (sort >= MAY_HOLD, sort >= CHANGES, used_up)


def filled(template: Any, own: tuple[Any, ...]) -> Any:
    """The value of which a template was made, with a call's own objects in it."""
    return rebuilt(template, lambda it: own[it.index] if type(it) is _Placeholder else NOTHING, _MOST_LEVELS)
