"""What comes of operations is compared with what came of them when nothing failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from case import Case

from reference import assert_exact


def as_before(expected: Any) -> Callable[[Any], None]:
    """The value is such a tree: of the same structure, with the same objects for leaves, or equal ones."""
    wanted, structure = jax.tree.flatten(expected)

    def check(value: Any) -> None:
        leaves, found = jax.tree.flatten(value)
        assert found == structure, f"{value!r} is not {expected!r}"
        for leaf, other in zip(leaves, wanted, strict=True):
            if isinstance(other, jax.Array):
                assert_exact(leaf, other)
            else:
                assert leaf is other or (type(leaf) is type(other) and leaf == other), f"{leaf!r} is not {other!r}"

    return check


def unfailing(run: Callable[[], Any], *watched: Any, **more: Any) -> Case:
    """An operation that gives the same each time."""
    return Case(run, as_before(run()), watched=watched, **more)


def says(*words: str) -> Callable[[Any], None]:
    """The exception's text has these."""

    def check(error: Any) -> None:
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        missing = [word for word in words if word not in text]
        assert not missing, f"{missing} not in {text!r}"

    return check


def refused(run: Callable[[], Any], told: str, kind: type[Exception], *watched: Any, **more: Any) -> Case:
    """An operation that raises each time."""
    return Case(run, says(told), raises=kind, watched=watched, **more)
