"""What results of operations are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from reference import assert_exact


def exactly(expected: Any) -> Callable[[Any], None]:
    """The value is this tree."""
    return lambda value: assert_exact(value, expected)


def equals(expected: Any) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        assert type(value) is type(expected) and value == expected, f"{value!r} is not {expected!r}"

    return check


def same(expected: Any) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        assert value is expected, f"{value!r} is not {expected!r}"

    return check


def all_same(value: Sequence[Any], expected: Sequence[Any]) -> None:
    """The same objects in the same order."""
    assert len(value) == len(expected), f"{len(value)} leaves, not {len(expected)}"
    assert all(a is b for a, b in zip(value, expected, strict=True)), "other leaves"


def alike(value: Any, expected: Any) -> None:
    """A tree of the same structure with the same objects for leaves."""
    assert jax.tree.structure(value) == jax.tree.structure(expected), f"{value!r} is not {expected!r}"
    all_same(jax.tree.leaves(value), jax.tree.leaves(expected))


def says(*words: str) -> Callable[[Any], None]:
    """The exception's text has these."""

    def check(error: Any) -> None:
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        missing = [word for word in words if word not in text]
        assert not missing, f"{missing} not in {text!r}"

    return check
