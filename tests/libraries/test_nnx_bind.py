"""Guards the promise that objects of Flax which are bound are changed in place, and seen when others change them."""

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
from trees import Pair

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose


class Counter(nnx.Variable[Any]):
    """What a call adds to."""


class Model(nnx.Module):
    def __init__(self, width: int = 4) -> None:
        rngs = nnx.Rngs(0)
        self.first, self.second = nnx.Linear(width, width, rngs=rngs), nnx.Linear(width, 1, rngs=rngs)
        self.calls = Counter(jnp.zeros((), int))

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(jnp.tanh(self.first(x)))


def predict(model: Model, x: jax.Array) -> jax.Array:
    return model(x)


X = jnp.ones((2, 4))


def close(found: Any, right: Any) -> bool:
    return bool(np.allclose(found, right, rtol=1e-5, atol=1e-6))


def test_arrays_and_containers_beside_the_objects_count_as_they_were() -> None:
    array, pair = np.ones(4, "f4"), Pair(np.ones(4, "f4"), None)
    tree = {"a": [np.ones(4, "f4")], "b": (np.ones(4, "f4"), None), "c": pair}

    @partax.nnx.jit
    def scaled(model: Model, array: Any, tree: Any, x: jax.Array) -> Any:
        model.calls[...] += 1
        return [it * x for it in (array, *jax.tree.leaves(tree))], model.calls[...]

    model = Model()
    bound = scaled.bind(model, array, tree)
    for count in range(1, 5):
        found, calls = bound(jnp.ones((count % 2 + 1, 4)))
        assert [float(it[0, 0]) for it in found] == [1] * 4 and int(calls) == int(model.calls[...]) == count
        array[:] = tree["a"][0][:] = tree["b"][0][:] = pair.left[:] = 5  # type: ignore[index]
    tree["d"] = jnp.ones(4)  # type: ignore[assignment]
    assert len(bound(jnp.ones((3, 4)))[0]) == 4


# What a Variable holds, and another value; or what changes it in place.
HELD: dict[str, tuple[Any, Any]] = {
    "an array of another type": (jnp.ones(4), jnp.full((), 2, "bfloat16")),
    "NumPy": (np.ones(4, "f4"), np.full(4, 2, "f4")),
    "a number for an array": (jnp.ones(()), 2),
    "a number": (1, 2),
    "nothing": (None, jnp.full(4, 2.0)),
    "an array for a text": ("a", jnp.full(4, 2.0)),
    "a dictionary": ({"a": jnp.ones(4), "b": jnp.ones(4)}, {"a": jnp.ones(4), "b": jnp.full(4, 2.0)}),
    "an array in a dictionary": ({"a": jnp.ones(4), "b": jnp.ones(4)}, lambda it: it.update(b=jnp.full(4, 2.0))),
    "an array in a dictionary of one": ({"a": jnp.ones(4)}, lambda it: it.update(a=jnp.full(4, 2.0))),
    "a text in a list": (["a", jnp.ones(4)], ["aa", jnp.ones(4)]),
}


def total(model: Model, x: jax.Array) -> jax.Array:
    leaves = jax.tree.leaves(model.calls.get_value())
    return x * sum(len(it) if isinstance(it, str) else it for it in leaves) + jnp.zeros(())


@pytest.mark.parametrize("name", HELD)
def test_whatever_a_variable_holds_is_seen(name: str) -> None:
    held, other = HELD[name]
    model, beside = Model(), Model()
    model.calls = Counter(jax.tree.map(lambda it: it, held))
    bound = partax.nnx.jit(lambda model, beside, x: total(model, x) + total(beside, x)).bind(model)
    for _ in range(4):
        assert close(bound(beside, X), total(model, X))
    if callable(other):
        other(model.calls.get_value())
    else:
        model.calls.set_value(other)
    for x in (X, jnp.ones((3, 4)), X, X):
        assert close(bound(beside, x), total(model, x))


def test_attributes_that_others_set_are_not_seen_by_half() -> None:
    model = Model()
    bound = partax.nnx.jit(predict).bind(model)
    for _ in range(3):
        bound(X)
    model.eval()
    model.width = 3  # type: ignore[attr-defined]
    bound(X)
    with pytest.raises(RuntimeError, match=r"since it was bound.*bind anew what you change"):
        bound(jnp.ones((3, 4)))
    assert close(bound.rebind(model)(jnp.ones((3, 4))), model(jnp.ones((3, 4))))


def test_attributes_that_others_set_are_seen_once_some_call_has_seen_them() -> None:
    model = type("Scaled", (Model,), {"by": 1})()
    bound = partax.nnx.jit(lambda model, x, more: x * model.by + more).bind(model)
    for _ in range(3):
        assert close(bound(X, 1), X + 1)
    model.by = 3
    bound(X, 1)
    for more in (2, 1, 2, 1):
        assert close(bound(X, more), X * 3 + more)


# What a step does to its model, where that is more than to give its Variables other arrays of the same types.
DONE: dict[str, Any] = {
    "a number": lambda model: setattr(model, "by", model.by + 1),
    "another Variable": lambda model: setattr(model, "calls", Counter(jnp.full((), 5))),
    "a Variable of another class": lambda model: setattr(model, "calls", nnx.Param(jnp.full((), 5))),
    "one Variable more": lambda model: setattr(model, "more", nnx.Param(jnp.ones(4))),
    "one less": lambda model: setattr(model, "calls", None),
    "another dtype": lambda model: model.calls.set_value(jnp.full((), 5, "bfloat16")),
    "several arrays": lambda model: model.calls.set_value({"a": jnp.full((), 5), "b": jnp.ones(4)}),
}


@pytest.mark.parametrize("name", DONE)
def test_what_one_mode_of_the_function_does_is_seen_by_the_others(name: str) -> None:
    def step(model: Any, x: jax.Array, mode: str) -> Any:
        if mode == "do":
            DONE[name](model)
        held = [model.by, *jax.tree.leaves(getattr(model, "more", None)), *jax.tree.leaves(model.calls)]
        return sum(it * x for it in held) + jnp.zeros(4), len(mode)

    models = Model(), Model()
    for model in models:
        model.by = 1  # type: ignore[attr-defined]
    bound, free = partax.nnx.jit(step).bind(models[0]), nnx.jit(step, static_argnums=2)
    for mode in ("a", "a", "a", "bb", "bb", "bb", "a", "do", "a", "bb", "a", "bb", "a", "do", "bb", "a"):
        assert close(bound(X, mode)[0], free(models[1], X, mode)[0]), mode


@pytest.mark.parametrize("donated", [(), ("model", "optimizer")])
def test_a_train_step_on_bound_objects(donated: tuple[str, ...]) -> None:
    models = Model(), Model()
    pairs = [(model, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)) for model in models]
    bound = partax.nnx.jit(train_step, donate_argnames=donated or None).bind(*pairs[0])
    free = nnx.jit(train_step)
    serve = partax.nnx.jit(predict).bind(models[0])
    for _ in range(6):
        assert close(bound(X), free(*pairs[1], X))
        assert close(serve(X), models[1](X))
    states = [jax.tree.leaves(nnx.state(pair)) for pair in pairs]
    assert all(close(a, b) for a, b in zip(*states, strict=True))


def test_shared_variables_and_aliases() -> None:
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
    dead = [weakref.ref(model), weakref.ref(model.first.kernel[...])]
    del model, bound
    gc.collect()
    assert [it() for it in dead] == [None, None]
