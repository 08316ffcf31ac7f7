"""An operation with a bug of each kind, in what it does when memory ends; the harness must report each by its name."""

import os
from collections.abc import Callable
from typing import Any

from case import OPERATIONS, Case, equals, returning

import trees
from partax import _core

LEAKED: list[Any] = []
TREE = {"a": [trees.array(1), 2], "b": trees.Bag(trees.array(1), label=[1])}


class CannotRaise:
    def __del__(self) -> None:
        raise ValueError("in a destructor")


def buggy(bug: Callable[[], Any], raises: bool = True, **more: Any) -> Case:
    """Flattens a tree. If that fails, runs the bug, and raises the error or returns the value of the bug."""

    def run() -> Any:
        try:
            return _core.tree_flatten(TREE, None)
        except MemoryError:
            value = bug()
            if raises:
                raise
            return value

    return Case(run, equals(_core.tree_flatten(TREE, None)), **more)


def changed() -> Case:
    state: list[int] = []
    return buggy(lambda: state.append(1), state=lambda: len(state))


def reference() -> Case:
    argument = object()
    return buggy(lambda: LEAKED.append(argument), watched=(argument,))


OPERATIONS.update(
    {
        "no fault": lambda: returning(lambda: _core.tree_flatten(TREE, None)),
        "crash": lambda: buggy(os.abort),
        "leak": lambda: buggy(lambda: LEAKED.append(_core.tree_flatten(TREE, None))),
        "wrong": lambda: buggy(lambda: ([], None), raises=False),
        "unraisable": lambda: buggy(lambda: CannotRaise() and None),
        "changed": changed,
        "reference": reference,
    }
)
