"""Writes down all that a program's trace can read, as checks that C++ makes of what was made anew."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from partax._guards.library_attributes import ABSENT, name_of, value_of
from partax._guards.places import place
from partax._guards.walk import Check, Walk


def written_down(roots: tuple[Any, ...]) -> tuple[tuple[Any, ...], Callable[[int], str], bool, str, str]:
    """Writes down what can be read of these values now. Called by C++ when a program is to be traced.

    Args:
      roots: the classes of the nodes of a call and its static values, or a callable.

    Returns:
      The checks, what each is of in words, whether arrays are among it, what is not proven or an empty string, and what
      is not proven of functions among the roots, which are the same only as the same objects.
    """
    walk = Walk()
    unproven = walk.all(roots) or walk.settings()
    checks = () if unproven else tuple(walk.checks)
    return checks, functools.partial(place, walk.places), walk.holds_arrays, unproven, walk.of_same_objects


class Read(NamedTuple):
    """What can be read of some values, for those who want more than to check it.

    Attributes:
      checks: of each value, in order.
      values: the values.
      place: what each is, in words, by number.
      unproven, of_same_objects: as of `written_down`.
      of_libraries: by name what can be read of libraries, but others may set; None for what is not there.
    """

    checks: list[Check]
    values: list[Any]
    place: Callable[[int], str]
    unproven: str
    of_same_objects: str
    of_libraries: list[tuple[str, Any]]


def read(roots: tuple[Any, ...]) -> Read:
    """Reads all that the code of some values can read now."""
    walk = Walk()
    unproven = walk.all(roots)
    place_of = functools.partial(place, walk.places)
    found = [(name_of(*pair), value_of(*pair)) for pair in walk.of_libraries]
    of_libraries = [(name, value) if value is not ABSENT else (f"no {name}", None) for name, value in found]
    return Read(walk.checks, walk.kept, place_of, unproven, walk.of_same_objects, of_libraries)
