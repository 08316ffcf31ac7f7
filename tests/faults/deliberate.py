"""An operation with a bug of each kind in what is done where memory ends: the name is what the harness must call it."""

import os
from collections.abc import Callable
from typing import Any

from case import Case, as_before, operations, unfailing

import trees
from partax import _core

KEPT: list[Any] = []
TREE = {"a": [trees.array(1), 2], "b": trees.Bag(trees.array(1), label=[1])}


class CannotRaise:
    def __del__(self) -> None:
        raise ValueError("nobody gets this")


def buggy(bug: Callable[[], Any], raises: bool = True, **more: Any) -> Case:
    """Flattens a tree; where that fails, the bug runs, and then the error is raised or its value given."""

    def run() -> Any:
        try:
            return _core.flatten(TREE)
        except MemoryError:
            value = bug()
            if raises:
                raise
            return value

    return Case(run, as_before(_core.flatten(TREE)), **more)


def changing() -> Case:
    state: list[int] = []
    return buggy(lambda: state.append(1), state=lambda: len(state))


def keeping() -> Case:
    argument = object()
    return buggy(lambda: KEPT.append(argument), watched=(argument,))


operations(
    "deliberate",
    {
        "no fault": lambda: unfailing(lambda: _core.flatten(TREE)),
        "crash": lambda: buggy(os.abort),
        "leak": lambda: buggy(lambda: KEPT.append(_core.flatten(TREE))),
        "wrong": lambda: buggy(lambda: ([], None), raises=False),
        "unraisable": lambda: buggy(lambda: CannotRaise() and None),
        "changed": changing,
        "reference": keeping,
    },
)
