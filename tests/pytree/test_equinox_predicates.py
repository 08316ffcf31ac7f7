"""Guards the promise that Equinox's own predicates take the leaves that they are true of, also while they are changed,
and are called for no leaf whose type tells all."""

from __future__ import annotations

import sys
import types
from typing import Any

import equinox as eqx
import equinox._filters as equinox_filters
import jax.numpy as jnp
import pytest

import partax
from partition_reference import takes

EQUINOX = ("is_array", "is_array_like", "is_inexact_array", "is_inexact_array_like")


class Target:
    pass


def called(tree: list[Any], f: Any) -> int:
    """How often the function `f` runs."""
    count = 0

    def watch(frame: types.FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is f.__code__

    former = sys.getprofile()
    sys.setprofile(watch)
    try:
        partax.partition(tree, f)
    finally:
        sys.setprofile(former)
    return count


def test_a_predicate_of_equinox_that_is_changed_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = [1, "x", jnp.ones(2), Target()]

    def agrees() -> bool:
        return all(takes(tree, getattr(eqx, name)) == [bool(getattr(eqx, name)(x)) for x in tree] for name in EQUINOX)

    assert agrees()
    plain = takes(tree, eqx.is_array)
    with monkeypatch.context() as changed:
        changed.setattr(equinox_filters, "_ARRAY_TYPES", (str,))
        changed.setattr(equinox_filters, "_NDARRAY_TYPES", ())
        assert agrees() and takes(tree, eqx.is_array) == [False, True, False, False]
    assert agrees() and takes(tree, eqx.is_array) == plain
