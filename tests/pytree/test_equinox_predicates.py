"""Guards the promise that Equinox's own predicates take the leaves that they are true of, also while they are changed,
and are called for no leaf whose type tells all."""

from __future__ import annotations

import enum
import sys
import types
from typing import Any

import equinox as eqx
import equinox._filters as equinox_filters
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partition_reference import takes

EQUINOX = ("is_array", "is_array_like", "is_inexact_array", "is_inexact_array_like")


class Target:
    pass


class Colour(enum.Enum):
    RED = 1


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


@pytest.mark.parametrize("name", EQUINOX)
def test_a_predicate_of_equinox_runs_for_no_leaf_whose_type_tells_all(name: str) -> None:
    f = getattr(eqx, name)
    assert called(["x", b"y", Target(), jnp.sin, len, Target, Colour.RED, None], f) == 0
    assert called([Target()] * 3 + [lambda: 0], lambda x: f(x)) == 4
    arrays = [jnp.ones(2), np.ones(2), np.float32(1), 1, 2.0]
    if name in ("is_array", "is_array_like"):
        assert called(arrays, f) == 0
    elif name == "is_inexact_array":
        assert called(arrays, f) == 3  # its dtype, which the type does not tell


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


def test_a_function_of_another_module_is_called() -> None:
    like_equinox: dict[str, Any] = dict(vars(equinox_filters))
    like_equinox["_ARRAY_TYPES"] = (str,)
    mine = types.FunctionType(eqx.is_array.__code__, like_equinox)
    assert takes([1, "x", jnp.ones(2)], mine) == [False, True, False]
