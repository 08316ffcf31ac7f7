"""Guards the promise that a class as filter, and Equinox's predicates take just the leaves that isinstance and
Equinox's own functions name, leaf by leaf; and that the built-in predicates distinguish arrays, array-likes and inexact
arrays exactly: jax, tracers, NumPy with extension dtypes, scalars, `__jax_array__`, keys and refs."""

import abc
import collections.abc
import enum
import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox._filters as equinox_filters
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import partax
from partax import _core, is_array
from partition_reference import takes

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose


class Plain:
    pass


class Abstract(abc.ABC):  # noqa: B024 - classes are registered with it
    pass


class JaxArrayProtocol:
    """Not an array, but convertible: JAX's own protocol."""

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value


class ByInstance(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return type(instance) is str


Odd = ByInstance("Odd", (), {})
Registered = type("Registered", (), {})
Abstract.register(Registered)
converts_itself = types.SimpleNamespace(__jax_array__=lambda: jnp.ones(2))
LEAVES: list[Any] = [1, True, 2.5, 1j, "x", b"y", np.float32(1), np.ones(2), jnp.ones(2), jax.lax.Precision.HIGH]
LEAVES += [jnp.sin, len, int, Plain, Plain(), Registered(), JaxArrayProtocol(jnp.ones(2)), converts_itself]
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


def test_tracers_are_arrays() -> None:
    @jax.jit
    def f(x: jax.Array) -> jax.Array:
        tree = [x, 1, jax.ShapeDtypeStruct((2,), jnp.float32), np.ones(2), "x", x + 1]
        for kind in (jax.Array, np.ndarray, (jax.Array, int)):
            assert takes(tree, kind) == [isinstance(leaf, kind) for leaf in tree]
        assert takes(tree, eqx.is_array) == [eqx.is_array(leaf) for leaf in tree]
        return x

    f(jnp.ones(2))


# ---- The built-in predicates.

PREDICATES = ("is_array", "is_array_like", "is_inexact_array", "is_inexact_array_like")


class ModuleWithProtocol(eqx.Module):
    """A node, which is array-like itself (as with `is_leaf`)."""

    value: jax.Array
    __jax_array__ = JaxArrayProtocol.__jax_array__


# Each row: what it is, the value, then the answers in the order of PREDICATES.
ARRAY, INEXACT, LIKE, INEXACT_LIKE, NOTHING = (
    (True, True, False, False),
    (True, True, True, True),
    (False, True, False, False),
    (False, True, False, True),
    (False, False, False, False),
)
CASES = {
    "jax float32": (lambda: jnp.ones(3), INEXACT),
    "jax bfloat16": (lambda: jnp.ones(3, jnp.bfloat16), INEXACT),
    "jax int32": (lambda: jnp.ones(3, jnp.int32), ARRAY),
    "jax typed key": (lambda: jax.random.key(0), ARRAY),
    "jax float0": (lambda: jax.vjp(lambda x: x * 1, jnp.ones(2, int))[1](np.zeros(2, jax.dtypes.float0))[0], ARRAY),
    "numpy float64": (lambda: np.ones(3), INEXACT),
    "numpy subclass": (lambda: np.ones(3).view(np.matrix), INEXACT),
    "numpy int4": (lambda: np.ones(3, ml_dtypes.int4), ARRAY),
    "np.float32 scalar": (lambda: np.float32(1), INEXACT),
    "bool": (lambda: True, LIKE),
    "int": (lambda: 3, LIKE),
    "int subclass": (lambda: enum.IntEnum("One", "ONE").ONE, LIKE),
    "float": (lambda: 3.0, INEXACT_LIKE),
    "complex": (lambda: 3j, INEXACT_LIKE),
    "__jax_array__ of floats": (lambda: JaxArrayProtocol(jnp.ones(2)), INEXACT_LIKE),
    "__jax_array__ of ints": (lambda: JaxArrayProtocol(jnp.ones(2, int)), LIKE),
    "module with __jax_array__": (lambda: ModuleWithProtocol(jnp.ones(2)), INEXACT_LIKE),
    "None": (lambda: None, NOTHING),
    "str": (lambda: "1.0", NOTHING),
    "function": (lambda: jnp.sin, NOTHING),
    "jax.Array class": (lambda: jax.Array, NOTHING),
    "ShapeDtypeStruct": (lambda: jax.ShapeDtypeStruct((3,), jnp.float32), NOTHING),
}


def answers(value):
    return tuple(getattr(_core, name)(value) for name in PREDICATES)


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_bool_of_the_table(name):
    make, expected = CASES[name]
    assert answers(make()) == expected
    assert all(type(answer) is bool for answer in answers(make()))


@pytest.mark.parametrize("name", ["jax float32", "jax bfloat16", "jax int32", "jax typed key"])
def test_tracers_answer_by_their_dtype(name):
    make, expected = CASES[name]
    seen = []
    function = lambda x: (seen.append((isinstance(x, jax.core.Tracer), answers(x))), x)[1]
    jax.jit(function)(make())
    jax.vmap(function)(make()[None])
    assert seen == [(True, expected)] * 2


def test_refs_are_not_arrays_as_in_equinox():
    """Though filter_jit traces a ref, it cannot be differentiated."""
    ref = jax.new_ref(jnp.ones(2))
    assert answers(ref) == tuple(getattr(eqx, name)(ref) for name in PREDICATES) == NOTHING


def raises(*_):
    raise OSError("no array today")


@pytest.mark.parametrize("protocol", [raises, property(raises)], ids=["call", "look-up"])
@pytest.mark.parametrize("name", PREDICATES)
def test_an_error_of_the_protocol_is_the_user_s(name, protocol):
    value = type("Raises", (), {"__jax_array__": protocol})()
    predicate = getattr(_core, name)
    asks = {"is_inexact_array_like"} if protocol is raises else {"is_array_like", "is_inexact_array_like"}
    if name not in asks:
        assert predicate(value) == (name == "is_array_like")
        return
    for ask in (lambda: predicate(value), lambda: partax.partition([1, value], predicate)):
        with pytest.raises(OSError, match="no array today"):
            ask()
