"""Guards the promise that Equinox's own predicates take the leaves that they are true of, also while they change."""

from __future__ import annotations

import types

import equinox as eqx
import equinox._filters as equinox_filters
import jax.numpy as jnp
import pytest

from partition_reference import takes

EQUINOX = ("is_array", "is_array_like", "is_inexact_array", "is_inexact_array_like")


class Target:
    pass


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
    like_equinox = {**vars(equinox_filters), "_ARRAY_TYPES": (str,)}
    assert takes([1, "x", jnp.ones(2)], types.FunctionType(eqx.is_array.__code__, like_equinox)) == [False, True, False]
