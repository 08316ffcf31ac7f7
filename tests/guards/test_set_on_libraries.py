"""Guards the promise that what is set on something of a library counts, also where it is met through an argument."""

import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.struct
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import partax
import partax.nnx

X = 5.0  # no array: a trace that holds one goes with its function
LINEAR = eqx.nn.Linear(3, 3, key=jax.random.key(0))
ADAM = optax.adam(1e-3).init(jnp.ones(3))

TWICE, THRICE = (lambda self, x: 2 * x), (lambda self, x: 3 * x)
PROPERTIES = property(lambda self: 2.0), property(lambda self: 3.0)


class Own(flax.struct.PyTreeNode):
    """A class of a user's that stands on one of Flax's."""


# The class, an instance, how code reads it, the name of what is set, and twice what.
CHANGES: dict[str, tuple[type, Any, Callable[[Any], Any], str, Any, Any]] = {
    "a method that Python calls": (eqx.nn.Linear, LINEAR, lambda m: m(X), "__call__", TWICE, THRICE),
    "a method": (eqx.nn.Linear, LINEAR, lambda m: m.mine(X), "mine", TWICE, THRICE),
    "a number": (eqx.nn.Linear, LINEAR, lambda m: m.mine * X, "mine", 2.0, 3.0),
    "a property of a base class": (eqx.Module, LINEAR, lambda m: m.mine * X, "mine", *PROPERTIES),
    "an object of a user's": (eqx.nn.Linear, LINEAR, lambda m: len(m.mine) * X, "mine", [1, 2], [1, 2, 3]),
    "of a named tuple": (type(ADAM[0]), ADAM, lambda state: state[0].mine * X, "mine", 2.0, 3.0),
    "of a class of Flax's": (nnx.Linear, nnx.Linear(3, 3, rngs=nnx.Rngs(0)), lambda m: m(X), "__call__", TWICE, THRICE),
    "of a static value's class": (optax.MaskedNode, (optax.MaskedNode(), 1), lambda a: a[0].mine * X, "mine", 2.0, 3.0),
    "of a base of a user's class": (flax.struct.PyTreeNode, Own(), lambda own: own.mine * X, "mine", 2.0, 3.0),
}
WAYS: dict[str, Callable[..., Any]] = {"filter_jit": partax.filter_jit, "nnx.jit": partax.nnx.jit}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", CHANGES)
def test_it_counts_for_a_function_made_anew(change: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cls, instance, read, name, before, after = CHANGES[change]
    for value in (before, after):
        monkeypatch.setattr(cls, name, value, raising=False)
        found = WAYS[way](lambda it: read(it))(instance)
        assert jnp.array_equal(found, read(instance))


def test_so_does_what_is_changed_in_an_object_that_is_set_there(monkeypatch: pytest.MonkeyPatch) -> None:
    held = types.SimpleNamespace(k=0.0)
    monkeypatch.setattr(eqx.nn.Linear, "mine", held, raising=False)
    for held.k in (2.0, 3.0):
        assert partax.filter_jit(lambda m, x: m.mine.k * x)(LINEAR, jnp.float32(1)) == held.k


# What is given to a function beside the array, and how it reads what is set on the last of it.
GIVEN: dict[str, tuple[Any, Any, Callable[..., Any]]] = {
    "a module": (optax, optax, lambda it: it.mine),
    "a function": (optax.sgd, optax.sgd, lambda it: it.mine),
    "a function with a rule": (jax.nn.relu, jax.nn.relu, lambda it: it.mine),
    "a function in a tuple": (optax.adam, (1, optax.adam), lambda it: it[1].mine),
    "a function in a module": (jax.nn.gelu, eqx.nn.Lambda(jax.nn.gelu), lambda it: it.fn.mine),
    "code that reads it of a module": (optax, lambda of: of.mine, lambda it: it(optax)),
    "code that reads it of a function": (optax.sgd, lambda of: of.mine, lambda it: it(optax.sgd)),
    "code that asks whether it is there": (optax.lion, lambda of: getattr(of, "mine", 1.0), lambda it: it(optax.lion)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("given", GIVEN)
def test_it_counts_where_an_argument_leads_to_it(given: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, argument, read = GIVEN[given]
    for value in (2.0, 3.0):
        monkeypatch.setattr(owner, "mine", value, raising=False)
        jitted = WAYS[way](lambda it, x: read(it) * x)
        found = jitted(argument, jnp.float32(1))
        assert found == value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "values"), [("mine", PROPERTIES), ("__mul__", (TWICE, THRICE))])
def test_so_does_what_is_set_on_the_arrays_of_a_trace(
    name: str, values: tuple[Any, Any], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = (lambda x: x.mine) if name == "mine" else (lambda x: x * X)
    for value in values:
        monkeypatch.setattr(jax.core.Tracer, name, value, raising=False)
        found = WAYS[way](lambda x: read(x))(jnp.float32(1))
        assert found == jax.jit(lambda x: read(x))(jnp.float32(1))
