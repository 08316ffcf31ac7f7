"""Guards the promise that a call with bound objects of Flax reads the arrays of their Variables, and changes them in
place."""

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import partax.nnx
from nnx_graphs import train_step

X = jnp.ones((2, 4))


class Counter(nnx.Variable[Any]):
    """What a call adds to."""


class Model(nnx.Module):
    def __init__(self, width: int = 4) -> None:
        rngs = nnx.Rngs(0)
        self.first, self.second = nnx.Linear(width, width, rngs=rngs), nnx.Linear(width, 1, rngs=rngs)
        self.calls = Counter(jnp.zeros((), int))

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(jnp.tanh(self.first(x)))


def close(result: Any, expected: Any) -> bool:
    return bool(np.allclose(result, expected, rtol=1e-5, atol=1e-6))


@pytest.mark.parametrize("donated", [(), ("model", "optimizer")])
def test_steps_and_predictions_in_turn(donated: tuple[str, ...]) -> None:
    """The predictions read the weights that the steps set, whatever other function set them."""
    models = Model(), Model()
    pairs = [(model, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)) for model in models]
    bound = partax.nnx.jit(train_step, donate_argnames=donated or None).bind(*pairs[0])
    predict = partax.nnx.jit(lambda model, x: model(x)).bind(models[0])
    free = nnx.jit(train_step)
    for _ in range(6):
        assert close(bound(X), free(*pairs[1], X))
        assert close(predict(X), models[1](X))
    states = [jax.tree.leaves(nnx.state(pair)) for pair in pairs]
    assert all(close(a, b) for a, b in zip(*states, strict=True))


def test_random_streams_advance_in_each_call() -> None:
    models = [
        nnx.Sequential(nnx.Linear(4, 4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)) for rngs in map(nnx.Rngs, (0, 0))
    ]
    bound, free = partax.nnx.jit(lambda model, x: model(x)).bind(models[0]), nnx.jit(lambda model, x: model(x))
    for _ in range(5):
        assert close(bound(X), free(models[1], X))


def total(model: Model, x: jax.Array) -> jax.Array:
    leaves = jax.tree.leaves(model.calls.get_value())
    return x * sum(len(it) if isinstance(it, str) else it for it in leaves) + jnp.zeros(())


def add_item(held: dict[str, Any]) -> None:
    held["a"] = jnp.full(4, 2.0)


# What a Variable holds, and another value; or what changes it in place.
HELD: dict[str, tuple[Any, Any]] = {
    "an array": (jnp.ones(4), jnp.full(4, 2.0)),
    "an array of another type": (jnp.ones(4), jnp.full((), 2, "bfloat16")),
    "NumPy for an array": (jnp.ones(4), np.full(4, 2, "f4")),
    "a number for an array": (jnp.ones(()), 2),
    "an array for nothing": (None, jnp.full(4, 2.0)),
    "a dictionary": ({"a": jnp.ones(4)}, add_item),
}


@pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose
@pytest.mark.parametrize("name", HELD)
def test_another_value_of_a_variable_is_seen(name: str) -> None:
    held, other = HELD[name]
    model, free = Model(), Model()
    model.calls = Counter(jax.tree.map(lambda it: it, held))
    bound = partax.nnx.jit(lambda model, free, x: total(model, x) + total(free, x)).bind(model)
    for _ in range(4):
        assert close(bound(free, X), total(model, X))
    if callable(other):
        other(model.calls.get_value())
    else:
        model.calls.set_value(other)
    for x in (X, jnp.ones((3, 4)), X, X):
        assert close(bound(free, x), total(model, x))


# What a step does to its model, where that is more than to set the arrays of its Variables.
CHANGES: dict[str, Any] = {
    "a number": lambda model: setattr(model, "by", model.by + 1),
    "a Variable of another class": lambda model: setattr(model, "calls", nnx.Param(jnp.full((), 5))),
    "one Variable more": lambda model: setattr(model, "more", nnx.Param(jnp.ones(4))),
    "another dtype": lambda model: model.calls.set_value(jnp.full((), 5, "bfloat16")),
    "several arrays": lambda model: model.calls.set_value({"a": jnp.full((), 5), "b": jnp.ones(4)}),
}


@pytest.mark.filterwarnings("ignore::partax.RetraceWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_what_one_mode_of_the_function_changes_is_seen_by_the_others(name: str) -> None:
    def step(model: Any, x: jax.Array, mode: str) -> Any:
        if mode == "change":
            CHANGES[name](model)
        leaves = [model.by, *jax.tree.leaves(getattr(model, "more", None)), *jax.tree.leaves(model.calls)]
        return sum(it * x for it in leaves) + jnp.zeros(4), len(mode)

    models = Model(), Model()
    for model in models:
        model.by = 1  # type: ignore[attr-defined]
    bound, free = partax.nnx.jit(step).bind(models[0]), nnx.jit(step, static_argnums=2)
    for mode in ("a", "a", "a", "bb", "bb", "a", "change", "a", "bb", "a", "change", "bb", "a"):
        assert close(bound(X, mode)[0], free(models[1], X, mode)[0]), mode


def test_attributes_that_others_set_take_a_new_bind() -> None:
    model = type("Scaled", (Model,), {"by": 1})()
    bound = partax.nnx.jit(lambda model, x: x * model.by).bind(model)
    for _ in range(3):
        assert close(bound(X), X)
    model.by = 3
    assert close(bound(X), X) and close(bound.rebind(model)(X), X * 3)


def test_an_array_that_is_bound_with_objects_counts_as_it_was() -> None:
    def scaled(model: Model, array: Any, x: jax.Array) -> Any:
        model.calls[...] += 1
        return array * x, model.calls[...]

    model, array = Model(), np.ones(4, "f4")
    bound = partax.nnx.jit(scaled).bind(model, array)
    for count in range(1, 5):
        result, calls = bound(jnp.ones((count % 2 + 1, 4)))
        assert float(result[0, 0]) == 1 and int(calls) == int(model.calls[...]) == count
        array[:] = 5


def test_a_variable_in_two_places_is_one() -> None:
    class Tied(nnx.Module):
        def __init__(self) -> None:
            self.a = self.b = nnx.Param(jnp.ones(3))
            self.c = nnx.Param(self.a[...])  # the same array in another Variable

    def step(model: Tied, x: jax.Array) -> jax.Array:
        model.b[...] += x
        return model.a[...] + model.c[...]

    model, other = Tied(), Tied()
    bound, free = partax.nnx.jit(step).bind(model), nnx.jit(step)
    for _ in range(5):
        assert close(bound(jnp.ones(3)), free(other, jnp.ones(3)))
        assert model.a is model.b and close(model.c[...], 1)


def test_nothing_of_the_objects_outlives_the_bound_function() -> None:
    model = Model()
    bound = partax.nnx.jit(lambda model, x: model.calls.set_value(model.calls[...] + 1)).bind(model)
    for _ in range(4):
        bound(X)
    before = weakref.ref(model.calls[...])
    bound(X)
    gc.collect()
    assert before() is None
    references = [weakref.ref(model), weakref.ref(model.first.kernel[...])]
    del model, bound
    gc.collect()
    assert [reference() for reference in references] == [None, None]
