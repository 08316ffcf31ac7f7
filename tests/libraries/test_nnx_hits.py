"""Guards the promise that a call of partax.nnx.jit that hits runs no Python of ours, and mixes no objects up."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import partax
import partax.nnx
from called_functions import called_functions
from nnx_graphs import described, train_step


class Model(nnx.Module):
    def __init__(self, seed: int = 0):
        rngs = nnx.Rngs(seed)
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs) for _ in range(2)])
        self.count = nnx.BatchStat(jnp.zeros(()))

    def __call__(self, x: jax.Array) -> jax.Array:
        self.count[...] += 1
        for layer in self.layers:
            x = layer(x)
        return x


def nothing(model: Model, optimizer: Any, x: jax.Array) -> jax.Array:
    return x + 1


def counted(model: Model, optimizer: Any, x: jax.Array) -> jax.Array:
    return model(x)


@pytest.mark.parametrize(("function", "expected"), [(nothing, 0), (counted, 1), (train_step, 1)])
def test_a_hit_runs_no_python(function: Callable[..., Any], expected: int) -> None:
    model = Model()
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    jitted, x = partax.nnx.jit(function), jnp.ones((2, 3))
    jitted.clear_cache()  # it is that of other tests too
    for _ in range(3):
        jitted(model, optimizer, x)
    called = called_functions(lambda: jitted(model, optimizer, x), partax, flax)
    # Flax's question which trace is the current one, where there is something to change.
    assert len(called) == expected
    assert all("current_jax_trace" in name for name in called)
    assert jitted.cache_info().traces == 1


def test_what_flax_says_of_an_object_is_compared_as_flax_does() -> None:
    """`_pytree__nodes`, of which each object has one of its own, tells data from static attributes."""

    class Pair(nnx.Pytree):
        def __init__(self, *data: str) -> None:
            for name in ("a", "b"):
                value = jnp.ones(2) if name in data else 1
                setattr(self, name, nnx.data(value) if name in data else nnx.static(value))

    jitted = partax.filter_jit(lambda pair: (pair.a, pair.b))
    for data, traces in ((("a",), 1), (("a",), 1), (("b",), 2), (("a",), 2), (("a", "b"), 3), (("b",), 3)):
        for _ in range(2):
            found = jitted(Pair(*data))
            assert [isinstance(it, jax.Array) for it in found] == [name in data for name in ("a", "b")]
        assert jitted.cache_info().traces == traces


def swap(first: nnx.Variable[Any], second: nnx.Variable[Any]) -> None:
    first[...], second[...] = second[...] + 1, first[...] + 10


@pytest.mark.parametrize("order", ["aabb", "abab", "baba", "bbaa"])
def test_one_object_or_two_of_the_same_structure(order: str) -> None:
    """The same static key but for which objects are one: a trace of the one must never serve the other."""
    ours, theirs = partax.nnx.jit(swap), nnx.jit(swap)
    for kind in order:
        pairs: list[tuple[Any, Any]] = []
        for jitted in (ours, theirs):
            first = nnx.Param(jnp.zeros(()))
            second = first if kind == "a" else nnx.Param(jnp.ones(()))
            jitted(first, second)
            pairs.append((float(first[...]), float(second[...])))
        assert pairs[0] == pairs[1]
    assert ours.cache_info().traces == 2


def test_an_object_moves_to_a_place_where_another_one_was() -> None:
    """Addresses that were found to be different must not be taken so once one of them stands twice."""
    jitted = partax.nnx.jit(swap)
    first, second = nnx.Param(jnp.zeros(())), nnx.Param(jnp.ones(()))
    for _ in range(3):
        jitted(first, second)
    before = float(first[...])
    jitted(first, first)
    assert float(first[...]) == before + 10
    jitted(second, first)
    assert jitted.cache_info().traces == 2


def test_a_variable_of_another_trace_is_refused_in_a_hit() -> None:
    jitted = partax.nnx.jit(swap)
    first, second = nnx.Param(jnp.zeros(())), nnx.Param(jnp.ones(()))
    for _ in range(3):
        jitted(first, second)
    values = float(first[...]), float(second[...])

    @jax.jit
    def inside(x: jax.Array) -> jax.Array:
        jitted(first, second)
        return x

    with pytest.raises(Exception, match="Cannot mutate 'Param' from different trace level") as error:
        inside(jnp.ones(()))
    assert any("`first`" in note for note in error.value.__notes__)
    assert (float(first[...]), float(second[...])) == values

    @jax.jit
    def with_its_own(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        a, b = nnx.Param(x), nnx.Param(x + 1)
        jitted(a, b)
        return a[...], b[...]

    for _ in range(2):
        assert tuple(map(float, with_its_own(jnp.zeros(())))) == (2.0, 10.0)
    jitted(first, second)
    assert (float(first[...]), float(second[...])) == (values[1] + 1, values[0] + 10)


def test_what_was_replaced_is_let_go() -> None:
    jitted, variable = partax.nnx.jit(swap), nnx.Param(jnp.zeros(()))
    other = nnx.Param(jnp.ones(()))
    for _ in range(3):
        jitted(variable, other)
    before = weakref.ref(variable.get_raw_value())
    jitted(variable, other)
    gc.collect()
    assert before() is None


@partax.nnx.jit
def at_module_level(model: Model, x: jax.Array) -> jax.Array:
    return model(x)


def double(variable: nnx.Variable[Any]) -> None:
    variable[...] *= 2


def test_pickles() -> None:
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level
    made = pickle.loads(pickle.dumps(partax.nnx.jit(double, donate="all")))
    variable = nnx.Param(jnp.ones(()))
    made(variable)
    assert float(variable[...]) == 2
    assert repr(made) == "<partax.nnx.jit of double>"


def grow(tree: Any) -> None:
    for _, value in nnx.iter_graph(tree, graph=True):
        if isinstance(value, nnx.Variable) and jnp.issubdtype(value[...].dtype, jnp.floating):
            value[...] += 1


ADAM = optax.adam(1e-2)
OBJECTS: dict[str, Callable[[], Any]] = {
    "module": Model,
    "optimizer": lambda: nnx.Optimizer(Model(), ADAM, wrt=nnx.Param),
    "metrics": lambda: nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy()),
    "dropout": lambda: nnx.Dropout(0.5, rngs=nnx.Rngs(0)),
    "batch norm": lambda: [nnx.BatchNorm(2, rngs=nnx.Rngs(0))],
    "variable": lambda: nnx.Param(jnp.ones(2), tag="x"),
    "state": lambda: nnx.state(Model()),
    "split": lambda: nnx.split(Model()),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_each_object_is_found_in_its_place(name: str) -> None:
    ours, theirs = partax.nnx.jit(grow), nnx.jit(grow)
    ours.clear_cache()
    tree, expected = {"a": OBJECTS[name]()}, {"a": OBJECTS[name]()}
    for _ in range(3):
        ours(tree)
        theirs(expected)
        assert described(tree) == described(expected)
    assert ours.cache_info().traces == 1
    called = called_functions(lambda: ours(tree), partax, flax)
    assert not [name for name in called if "current_jax_trace" not in name]


@pytest.mark.parametrize("other", [1.0, np.float32(1), "ref", None], ids=str)
def test_what_is_no_array_comes_to_the_place_of_one(other: Any) -> None:
    def double(pair: Any) -> Any:
        if (value := pair[0].get_raw_value()) is not None:
            pair[1][...] += value if not isinstance(value, jax.Ref) else value[...]
        return pair[1][...]

    ours, theirs = partax.nnx.jit(double), nnx.jit(double)
    for value in (jnp.ones(1), jnp.ones(1), other, other, jnp.ones(1)):
        pairs = [nnx.List([nnx.Param(jnp.ones(1)), nnx.Param(jnp.ones(1))]) for _ in range(2)]
        for pair in pairs:
            object.__setattr__(pair[0], "_raw_value", jax.new_ref(jnp.ones(1)) if isinstance(value, str) else value)
        assert jnp.array_equal(ours(pairs[0]), theirs(pairs[1]))
        assert described(pairs[0][1]) == described(pairs[1][1])


def test_a_leaf_that_becomes_a_node() -> None:
    class Box:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

    def function(box: Any, variable: Any) -> None:
        variable[...] += 1
        if isinstance(box, Box):
            box.inner[...] += variable[...]

    box, variable = Box(nnx.Param(jnp.ones(1))), nnx.Param(jnp.ones(1))
    jitted = partax.nnx.jit(function)
    with pytest.raises(Exception, match="trace level"):  # it is static, and so the object in it no argument
        jitted(box, variable)
    jax.tree_util.register_pytree_node(Box, lambda box: ((box.inner,), None), lambda _, inner: Box(*inner))
    for _ in range(3):
        jitted(box, variable)
    assert (float(variable[0]), float(box.inner[0])) == (4, 1 + 2 + 3 + 4)
