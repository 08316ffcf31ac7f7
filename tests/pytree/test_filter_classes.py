"""Guards the promise that a class as filter, `is_array_like` and Equinox's predicates take just the leaves that
isinstance, hasattr and Equinox's own functions name, leaf by leaf."""

import abc
import collections.abc
import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox._filters as equinox_filters
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from partax import is_array, is_array_like
from partition_reference import takes

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose


class Plain:
    pass


class Abstract(abc.ABC):  # noqa: B024 - classes are registered with it
    pass


class Converts:
    def __jax_array__(self) -> jax.Array:
        return jnp.ones(2)


class ByInstance(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return type(instance) is str


Odd = ByInstance("Odd", (), {})
Registered = type("Registered", (), {})
Abstract.register(Registered)
converts_itself = types.SimpleNamespace(__jax_array__=lambda: jnp.ones(2))
LEAVES: list[Any] = [1, True, 2.5, 1j, "x", b"y", np.float32(1), np.ones(2), jnp.ones(2), jax.lax.Precision.HIGH]
LEAVES += [jnp.sin, len, int, Plain, Plain(), Registered(), Converts(), converts_itself]
LEAVES += [types.SimpleNamespace()]
CLASSES: list[Any] = [Plain, Abstract, Odd, np.ndarray, jax.Array, collections.abc.Hashable, Plain | int | Abstract]
CLASSES += [(Plain, Abstract, int), int, object]


@pytest.mark.parametrize("kind", CLASSES, ids=str)
def test_a_class_takes_the_leaves_that_isinstance_names(kind: Any) -> None:
    assert takes(LEAVES * 2, kind) == [isinstance(x, kind) for x in LEAVES * 2]
    assert takes(LEAVES, ~(is_array & kind)) == [not (isinstance(x, kind) and is_array(x)) for x in LEAVES]


@pytest.mark.parametrize("name", ["is_array", "is_array_like", "is_inexact_array", "is_inexact_array_like"])
def test_predicates_of_equinox_are_what_they_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    predicate: Callable[[Any], bool] = getattr(eqx, name)
    assert takes(LEAVES * 2, predicate) == [bool(predicate(x)) for x in LEAVES * 2]
    monkeypatch.setattr(equinox_filters, "_ARRAY_TYPES", (str,))
    assert takes(LEAVES, predicate) == [bool(predicate(x)) for x in LEAVES]


def test_array_like_is_what_jax_takes_for_an_array() -> None:
    numbers_and_arrays = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)
    expected = [issubclass(type(x), numbers_and_arrays) or hasattr(x, "__jax_array__") for x in LEAVES]
    assert takes(LEAVES, is_array_like) == expected
    assert takes(LEAVES, ~is_array_like) == [not answer for answer in expected]


def test_tracers_are_arrays() -> None:
    @jax.jit
    def f(x: jax.Array) -> jax.Array:
        tree = [x, 1, jax.ShapeDtypeStruct((2,), jnp.float32), np.ones(2), "x", x + 1]
        for kind in (jax.Array, np.ndarray, (jax.Array, int)):
            assert takes(tree, kind) == [isinstance(leaf, kind) for leaf in tree]
        assert takes(tree, eqx.is_array) == [eqx.is_array(leaf) for leaf in tree]
        return x

    f(jnp.ones(2))
