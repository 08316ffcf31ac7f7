"""A callable that was copied or unpickled with a model works like the original."""

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

import partax
from counting import TraceCounter


def double(x):
    return 2 * x


@jax.custom_jvp
def with_jvp(x):
    return 2 * x


with_jvp.defjvp(lambda primals, tangents: (with_jvp(primals[0]), 2 * tangents[0]))

CALLABLES: dict[str, Callable[[Any], Any]] = {
    "jax.nn.silu": jax.nn.silu,
    "jnp.sin": jnp.sin,
    "eqx.nn.Lambda": eqx.nn.Lambda(jax.nn.silu),
    "eqx.nn.PReLU": eqx.nn.PReLU(0.3),
    "eqx.filter_jit": eqx.filter_jit(double),
    "jax.tree_util.Partial": jax.tree_util.Partial(jax.nn.silu),
    "optax": optax.cosine_decay_schedule(1.0, 10),
    "jax.jit with options": jax.jit(lambda x, n=2: n * x, static_argnames="n"),
    "jax.vmap of jax.jit": jax.vmap(jax.jit(double)),
    "jax.custom_jvp": with_jvp,
    "partax.filter_jit": partax.filter_jit(double),
    "function": double,
    "lambda": lambda x: 3 * x,
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "cloudpickle": lambda function: pickle.loads(cloudpickle.dumps(function)),
    "partial of a copy": lambda function: functools.partial(copy.deepcopy(function)),
}


class Module(eqx.Module):
    weight: jax.Array
    function: object = eqx.field(static=True)


class OpenModule(eqx.Module):
    weight: jax.Array
    function: object


X = jnp.array([[0.5, 0.25], [0.1, 0.9]])


def run_each(jit, models):
    """The results of the models, and the number of traces."""
    traces = TraceCounter()

    @jit
    def call(model, x):
        traces.tick()
        return model.function(x + model.weight), model

    return [call(model, X)[0] for model in models], traces.count


@pytest.mark.parametrize("name", CALLABLES)
@pytest.mark.parametrize(
    "copied",
    [pytest.param(make, id=name, marks=[pytest.mark.nightly] * (name != "deepcopy")) for name, make in COPIES.items()],
)
def test_a_copy_works_like_the_original_and_is_traced_no_more_often_than_in_equinox(name, copied):
    function = CALLABLES[name]
    has_arrays = isinstance(function, eqx.Module) and jax.tree.leaves(function)  # which a static field cannot have
    for kind in [OpenModule] if has_arrays else [OpenModule, Module]:
        models = [kind(jnp.float32(1.0), one) for one in (function, copied(function), copied(function))]
        values, traces = run_each(partax.filter_jit, models)
        assert all(jnp.allclose(value, function(X + 1.0)) for value in values)
        assert traces <= run_each(eqx.filter_jit, models)[1]
    one, expected = copied(function), function(X)
    assert jnp.allclose(partax.filter_jit(lambda f, x: f(x))(one, X), expected)
    assert jnp.allclose(partax.filter_jit(one)(X), expected)
    assert jnp.allclose(partax.filter_jit(lambda x: one(x))(X), expected)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
@pytest.mark.parametrize("name", ["jax.nn.silu", "jnp.sin", "jax.jit with options"])
def test_copies_of_one_function_are_one_function(name, copied):
    """As for a target network that is copied again in each step, which Equinox traces again each time."""
    models = [Module(jnp.float32(1.0), copied(CALLABLES[name])) for _ in range(4)]
    assert run_each(partax.filter_jit, models)[1] == 1


def test_copies_of_different_functions_are_different():
    functions = [jax.nn.silu, jax.nn.relu, jnp.sin, jax.jit(double), jax.jit(lambda x: 3 * x)]
    models = [Module(jnp.float32(1.0), copy.deepcopy(function)) for function in functions]
    values, _ = run_each(partax.filter_jit, models)
    assert all(jnp.allclose(value, one(X + 1.0)) for value, one in zip(values, functions, strict=True))
