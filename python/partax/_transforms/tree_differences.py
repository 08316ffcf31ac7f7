"""Where two trees that should be alike differ first, and what is there in each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from partax import _core
from partax._pytree.array_text import array_text
from partax._pytree.key_details import ARRAY, FIELD, NODE, RUN, VALUE, details
from partax._pytree.spec_data import DICTS, alike, shown

NUMBERS = (bool, int, float, complex)
_LONGEST = 200


def is_number(leaf: Any) -> bool:
    """Whether it is a number of Python's own, which is static and may become an array."""
    return type(leaf) in NUMBERS


class Flat(NamedTuple):
    """A tree as its static part and, for each array, whatever has its dtype and shape."""

    spec: _core.TreeSpec
    arrays: Sequence[Any]


class Difference(NamedTuple):
    """The first place where two trees differ, what each has there in words, and what a message says beside both."""

    path: str
    first: str
    second: str
    note: str = ""


class _Entry(NamedTuple):
    kind: int
    value: Any

    @property
    def settles(self) -> bool:
        return self.kind == VALUE and is_number(self.value)

    @property
    def text(self) -> str:
        if self.kind == ARRAY:
            return array_text(self.value)
        if self.kind != NODE:
            return shown(self.value, longest=_LONGEST)
        family, cls, arity = self.value
        return "None" if family == "none" else f"a `{cls.__name__}`" + ("" if arity is None else f" of {arity}")

    def has_fields_of(self, other: "_Entry") -> bool:
        """Whether it is an object of the class of another one, which has more fields or fewer."""
        are_objects = self.kind == other.kind == NODE and self.value[0] not in ("tuple", "list")
        return are_objects and self.value[:2] == other.value[:2] and self.value != other.value

    def same(self, other: "_Entry", numbers_settle: bool) -> bool:
        if numbers_settle and (self.settles or other.settles):
            return all(entry.settles or entry.kind == ARRAY for entry in (self, other))
        if self.kind != other.kind or self.kind in (ARRAY, NODE):
            return self.kind == other.kind and (self.kind == ARRAY or self.value == other.value)
        return _core.static_equal(self.value, other.value)


def _entries(flat: Flat, root: str) -> Iterator[tuple[str, _Entry]]:
    """All nodes, arrays and static values, each by its path; a node before what is in it."""
    arrays = iter(flat.arrays)
    # What stands for the arrays has to be one; which it is does not matter.
    tree = flat.spec.rebuild([np.False_] * len(flat.arrays))
    for path, kind, value in details(_core.describe_tree(tree, root)[0]):
        if kind == ARRAY:
            yield path, _Entry(ARRAY, next(arrays))
        elif kind == RUN:
            yield from ((f"{path}[{i}]", _Entry(VALUE, one)) for i, one in enumerate(value[1], value[0]))
        elif kind == NODE:
            family, cls, children = value
            yield path, _Entry(NODE, (family, cls, None if family in DICTS else children))
            if family == "ordered_dict":
                yield f"{path}.keys()", _Entry(FIELD, children)
        else:
            yield path, _Entry(kind, value)


def first_difference(first: Flat, second: Flat, root: str, numbers_settle: bool = False) -> Difference | None:
    """Where the static parts of two trees differ first, if they do; numbers may settle beside numbers and arrays."""
    one, other = dict(_entries(first, root)), dict(_entries(second, root))
    for path, entry in one.items():
        beside = other.get(path)
        if beside is None:
            return Difference(path, entry.text, "nothing")
        if not entry.same(beside, numbers_settle):
            owner, _, name = path.rpartition(".")
            # What a library keeps of its fields, such as their number, says less than the field.
            told_below = path if entry.has_fields_of(beside) else owner if name.startswith("_") else None
            field = None if told_below is None else _field_of_one(told_below, one, other)
            return field or Difference(path, entry.text, beside.text, alike(entry.text, beside.text))
    return next((Difference(path, "nothing", entry.text) for path, entry in other.items() if path not in one), None)


def numbers_that_differ(first: Flat, second: Flat, root: str) -> list[Difference]:
    """Where two trees differ that are the same but for Python numbers and None; nothing where they differ in more.

    It is each number in the one that is another number, or an array, in the other; and each None in the place of one.
    """
    one, other = dict(_entries(first, root)), dict(_entries(second, root))
    found: list[Difference] = []
    for path in [*one, *other]:
        entry, beside = one.get(path), other.get(path)
        if any(path.startswith((f"{it.path}.", f"{it.path}[")) for it in found if "None" in (it.first, it.second)):
            continue
        if entry is None or beside is None:
            return []
        if "None" in (entry.text, beside.text) and entry.text != beside.text:
            value = beside if entry.text == "None" else entry
            if value.kind not in (ARRAY, NODE) and not value.settles:
                return []
            found.append(Difference(path, entry.text, beside.text))
        elif not entry.same(beside, numbers_settle=True):
            return []
        elif not entry.same(beside, numbers_settle=False):
            found.append(Difference(path, entry.text, beside.text))
    return list(dict.fromkeys(found))


def unsteady(root: str) -> Difference:
    """What messages say of trees that were told apart by an `==` of the user's which says another thing each time."""
    return Difference(root, "one structure", "another", " (an `==` of a static value does not say the same each time)")


def _field_of_one(path: str, one: Mapping[str, _Entry], other: Mapping[str, _Entry]) -> Difference | None:
    """The first field below a path that only one of two objects of a class has."""
    inside = (it for it in (*one, *other) if it.startswith((f"{path}.", f"{path}[")) and (it in one) != (it in other))
    below = next(inside, None)
    if below is None:
        return None
    return Difference(below, *(each[below].text if below in each else "nothing" for each in (one, other)))
