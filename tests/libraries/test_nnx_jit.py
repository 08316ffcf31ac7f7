"""Guards the promise that partax.nnx.jit does to the caller's objects what nnx.jit does: values, identity, traces."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import partax.nnx
from nnx_graphs import Both, both, described

pytestmark = pytest.mark.filterwarnings("ignore:.*sow:DeprecationWarning")


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(8, 8, rngs=rngs) for _ in range(2)])

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.drop(self.norm(self.first(x)))
        for layer in self.layers:
            x = nnx.relu(layer(x))
        self.sow(nnx.Intermediate, "hidden", x)
        return x


def test_batch_statistics_rng_counters_sown_values_and_modes() -> None:
    def step(model: Net, x: jax.Array) -> jax.Array:
        return model(x).sum()

    pair = Both(step, Net(nnx.Rngs(0)), jnp.ones((2, 4)))
    for _ in range(3):
        pair.call()
    assert len(pair.ours[0].hidden.get_value()) == 3
    for args in pair.args:
        args[0].eval()
    pair.call()
    assert pair.traces[1] <= pair.traces[0]


def test_objects_that_are_no_pytrees() -> None:
    class Plain(nnx.Object):
        def __init__(self) -> None:
            self.weight = nnx.Param(jnp.ones(2))
            self.tag = "a"

    class Opaque(nnx.Module, pytree=False):
        def __init__(self, inner: Any) -> None:
            self.inner = inner
            self.again = inner
            self.array = jnp.ones(3)

    def step(model: Opaque) -> None:
        model.inner.weight[...] += 1
        model.array = model.array * 2
        model.inner.tag += "b"

    pair = both(step, Opaque(Plain()))
    assert pair.ours[0].inner is pair.ours[0].again
    assert pair.ours[0].inner.tag == "abbb"


def test_references() -> None:
    def step(variable: nnx.Variable, both: dict[str, Any]) -> jax.Array:
        variable[...] += 1
        return both["again"][...] * 2

    variable = nnx.Variable(jnp.ones(2), ref=True)
    jitted = partax.nnx.jit(step)
    for i in range(3):
        assert jitted(variable, {"again": variable})[0] == 2 * (2 + i)
        assert variable[...][0] == 2 + i
    made = partax.nnx.jit(lambda x: nnx.Variable(x + 1, ref=True))(jnp.ones(2))
    assert isinstance(made.get_raw_value(), jax.Ref)
    made[...] += 1
    assert made[...][0] == 3


def test_a_static_list_that_a_call_changes() -> None:
    class Noted(nnx.Module):
        def __init__(self) -> None:
            self.notes = nnx.static([1, {"a": 2}])

    def step(model: Noted, fails: bool) -> int:
        model.notes.append(len(model.notes))
        model.notes[1]["a"] += 1
        return len(model.notes) // (not fails)

    ours, plain, jitted = Noted(), Noted(), partax.nnx.jit(step)
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

    model = Model()
    assert model.step(jnp.ones(())) == 2
    assert Model.step(model, jnp.ones(())) == 3
    assert model.more(jnp.ones(()), n=3) == 3
    jitted = partax.nnx.jit(model)
    jitted(jnp.ones(()))
    jitted(jnp.ones(()))
    assert model.count[...] == 22
    assert jitted.cache_info().traces == 1
    assert model.step.lower(jnp.ones(())).as_text()


BATCH = jnp.arange(16.0).reshape(4, 4) / 16, jnp.ones((4, 8))


def squared_error(model: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return ((model(x) - y) ** 2).mean()


def train_step(model: Any, optimizer: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    loss, gradients = nnx.value_and_grad(squared_error)(model, x, y)
    optimizer.update(model, gradients)
    return loss


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


@pytest.mark.skipif(not hasattr(nnx, "cached_partial"), reason="this Flax has it elsewhere")
def test_a_cached_partial() -> None:
    adam = optax.adam(1e-2)
    results: list[Any] = []
    for jit in (nnx.jit, partax.nnx.jit):
        model = nnx.Linear(4, 8, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, adam, wrt=nnx.Param)
        kernel = model.kernel
        cached = nnx.cached_partial(jit(train_step), model, optimizer)
        losses = [cached(*BATCH) for _ in range(3)]
        assert model.kernel is kernel
        results.append((losses, described((model, optimizer))))
        with pytest.raises(TypeError, match="dot_general"):
            cached(jnp.ones((4, 7)), BATCH[1])
        assert jnp.isfinite(cached(*BATCH)), "a call that fails leaves nothing behind"
    theirs, ours = results
    assert theirs == ours
