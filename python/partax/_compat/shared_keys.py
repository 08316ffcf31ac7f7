"""Dictionaries that share their keys with their copies, as those of the instances of a class do."""

import functools
import sys
from typing import Any

_MOST_SPARE = 30
"""Places for further attributes that CPython keeps free in a new class; each new instance takes one away."""


def to_copy(entries: dict[Any, Any]) -> dict[Any, Any]:
    """A dictionary with the same keys and values, in the same order, of which a copy takes less memory if that can be.

    Args:
        entries: Stays as it is, and is what is returned where nothing is gained.
    """
    if not entries or not all(map(_may_be_attribute, entries)):
        return entries
    instance = _class_with(tuple(entries))()
    for key, value in entries.items():
        setattr(instance, key, value)
    shared = vars(instance)
    return shared if sys.getsizeof(shared.copy()) < sys.getsizeof(entries.copy()) else entries


def _may_be_attribute(key: Any) -> bool:
    """Whether an attribute of that name is under this very key in the dictionary of its instance."""
    return type(key) is str and not key.startswith("__") and sys.intern(key) is key


@functools.lru_cache(maxsize=256)
def _class_with(keys: tuple[str, ...]) -> type:
    cls = type("Entries", (), {})
    first = cls()
    for key in keys:
        setattr(first, key, None)
    for _ in range(_MOST_SPARE):
        cls()
    return cls
