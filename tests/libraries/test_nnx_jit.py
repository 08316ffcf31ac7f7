"""Guards the promise that partax.nnx.jit does to the caller's objects what nnx.jit does: values, identity, traces; and
that a call that hits runs no Python of ours, and mixes no objects up."""

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
from nnx_graphs import both, described, train_step

pytestmark = pytest.mark.filterwarnings("ignore:.*sow:DeprecationWarning")


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


@pytest.mark.parametrize("function", [lambda *args: args[2] + 1, lambda model, _, x: model(x), train_step])
def test_a_hit_runs_no_python(function: Callable[..., Any]) -> None:
    model = Model()
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    jitted, x = partax.nnx.jit(function), jnp.ones((2, 3))
    jitted.clear_cache()  # it is that of other tests too
    for _ in range(3):
        jitted(model, optimizer, x)
    assert not called_functions(lambda: jitted(model, optimizer, x), partax, flax)
    assert jitted.cache_info().traces == 1


def test_what_flax_says_of_an_object_is_compared_as_flax_does() -> None:
    class Pair(nnx.Pytree):
        def __init__(self, *data: str) -> None:
            for name in ("a", "b"):
                setattr(self, name, nnx.data(jnp.ones(2)) if name in data else nnx.static(1))

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
        pairs = [[nnx.Param(jnp.zeros(())), nnx.Param(jnp.ones(()))] for _ in range(2)]
        for pair, jitted in zip(pairs, (ours, theirs), strict=True):
            jitted(pair[0], pair[kind == "b"])
        assert described(*pairs[0]) == described(*pairs[1])
    assert ours.cache_info().traces == 2


def test_an_object_moves_to_a_place_where_another_one_was() -> None:
    """Addresses that were found to be different must not be taken so once one of them stands twice."""
    jitted = partax.nnx.jit(swap)
    first, second = nnx.Param(jnp.zeros(())), nnx.Param(jnp.ones(()))
    for _ in range(3):
        jitted(first, second)
    value, replaced = float(first[...]), weakref.ref(first.get_raw_value())
    jitted(first, first)
    gc.collect()
    assert float(first[...]) == value + 10 and replaced() is None
    jitted(second, first)
    assert jitted.cache_info().traces == 2


def test_a_variable_of_another_trace_is_refused_in_a_hit() -> None:
    jitted = partax.nnx.jit(swap)
    first, second = nnx.Param(jnp.zeros(())), nnx.Param(jnp.ones(()))
    for _ in range(3):
        jitted(first, second)
    values = float(first[...]), float(second[...])
    with pytest.raises(Exception, match="Cannot mutate 'Param' from different trace level") as error:
        jax.jit(lambda x: (jitted(first, second), x))(0)
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
    "optimizer": lambda: nnx.Optimizer(Model(), ADAM, wrt=nnx.Param),
    "metrics": lambda: nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy()),
    "dropout": lambda: nnx.Dropout(0.5, rngs=nnx.Rngs(0)),
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
    assert not called_functions(lambda: ours(tree), partax, flax)


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


def test_objects_that_are_no_pytrees() -> None:
    class Plain(nnx.Object):
        def __init__(self) -> None:
            self.weight, self.tag = nnx.Param(jnp.ones(2)), "a"

    class Opaque(nnx.Module, pytree=False):
        def __init__(self, inner: Any) -> None:
            self.inner, self.again, self.array = inner, inner, jnp.ones(3)

    def step(model: Opaque) -> None:
        model.inner.weight[...] += 1
        model.array = model.array * 2
        model.inner.tag += "b"

    pair = both(step, Opaque(Plain()))
    assert pair.ours[0].inner is pair.ours[0].again and pair.ours[0].inner.tag == "abbb"


def test_references() -> None:
    def step(variable: nnx.Variable, both: dict[str, Any]) -> jax.Array:
        variable[...] += 1
        return both["again"][...] * 2

    variable = nnx.Variable(jnp.ones(2), ref=True)
    jitted = partax.nnx.jit(step)
    for i in range(3):
        assert jitted(variable, {"again": variable})[0] == 2 * (2 + i) == 2 * variable[...][0]
    made = partax.nnx.jit(lambda x: nnx.Variable(x + 1, ref=True))(jnp.ones(2))
    made[...] += 1
    assert isinstance(made.get_raw_value(), jax.Ref) and made[...][0] == 3


def test_a_static_list_that_a_call_changes() -> None:
    def step(model: Any, fails: bool) -> int:
        model.notes.append(len(model.notes))
        model.notes[1]["a"] += 1
        return len(model.notes) // (not fails)

    (ours, plain), jitted = (nnx.Module(), nnx.Module()), partax.nnx.jit(step)
    for model in (ours, plain):
        model.notes = nnx.static([1, {"a": 2}])
    for _ in range(3):
        assert jitted(ours, False) == step(plain, False)
        assert ours.notes == plain.notes
    with pytest.raises(ZeroDivisionError):
        jitted(ours, True)
    assert ours.notes == plain.notes


def test_methods_callables_and_decorators() -> None:
    class Model(nnx.Module):
        def __init__(self) -> None:
            self.count = nnx.Variable(jnp.zeros(()))

        @partax.nnx.jit
        def step(self, x: jax.Array) -> jax.Array:
            self.count[...] += 1
            return x + self.count[...]

        @partax.nnx.jit(static_argnames=("n",), donate_argnames="x")
        def more(self, x: jax.Array, n: int) -> jax.Array:
            return x * n

        def __call__(self, x: jax.Array) -> jax.Array:
            self.count[...] += 10
            return x

    model, one = Model(), jnp.ones(())
    assert (model.step(one), Model.step(model, one), model.more(jnp.ones(()), n=3)) == (2, 3, 3)
    jitted = partax.nnx.jit(model)
    jitted(one)
    jitted(one)
    assert model.count[...] == 22 and jitted.cache_info().traces == 1
    assert model.step.lower(one).as_text()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_modules_of_linen_by_the_bridge() -> None:
    from flax import linen
    from flax.nnx import bridge

    def create(x: jax.Array) -> Any:
        return bridge.lazy_init(bridge.ToNNX(linen.Dense(4), rngs=nnx.Rngs(0)), x)

    x = jnp.ones((4, 4))
    made = partax.nnx.jit(create)(x)
    assert described(nnx.state(made)) == described(nnx.state(nnx.jit(create)(x)))
    both(lambda model, x: model(x), made, x, traces=1)
