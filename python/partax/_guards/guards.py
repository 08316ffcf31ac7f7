"""Writes down all that a program's trace can read, as checks that C++ makes of what was made anew."""

import functools
from collections.abc import Callable
from typing import Any

from partax._guards.places import place
from partax._guards.walk import Walk


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
