"""A callable that was copied or unpickled with a model works as the one that it is a copy of."""

import copy
import functools
import pickle

import cloudpickle
import equinox as eqx
import flax.linen
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import partax
from counting import TraceCounter


def double(x):
    return 2 * x


@jax.custom_jvp
def with_jvp(x):
    return 2 * x


with_jvp.defjvp(lambda primals, tangents: (with_jvp(primals[0]), 2 * tangents[0]))


@jax.custom_vjp
def with_vjp(x):
    return 2 * x


with_vjp.defvjp(lambda x: (2 * x, None), lambda _, cotangent: (2 * cotangent,))

CALLABLES = {
    "jax.nn.silu": jax.nn.silu,
    "jax.nn.gelu": jax.nn.gelu,
    "jnp.sin": jnp.sin,
    "nnx.silu": nnx.silu,
    "linen.tanh": flax.linen.tanh,
    "eqx.nn.Lambda": eqx.nn.Lambda(jax.nn.silu),
    "eqx.nn.PReLU": eqx.nn.PReLU(0.3),
    "eqx.filter_jit": eqx.filter_jit(double),
    "eqx.Partial": eqx.Partial(jnp.multiply, 2.0),
    "jax.tree_util.Partial": jax.tree_util.Partial(jax.nn.silu),
    "optax": optax.cosine_decay_schedule(1.0, 10),
    "jax.jit": jax.jit(double),
    "jax.jit with options": jax.jit(lambda x, n=2: n * x, static_argnames="n"),
    "jax.vmap of jax.jit": jax.vmap(jax.jit(double)),
    "jax.checkpoint of jax.jit": jax.checkpoint(jax.nn.silu),
    "jax.jit of jax.custom_jvp": jax.jit(with_jvp),
    "jax.custom_jvp": with_jvp,
    "jax.custom_vjp": with_vjp,
    "partax.filter_jit": partax.filter_jit(double),
    "function": double,
    "lambda": lambda x: 3 * x,
}
COPIES = {
    "as given": lambda it: it,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "twice": lambda it: copy.deepcopy(copy.deepcopy(it)),
    "cloudpickle": lambda it: pickle.loads(cloudpickle.dumps(it)),
    "partial": functools.partial,
    "partial of a copy": lambda it: functools.partial(copy.deepcopy(it)),
}


class Module(eqx.Module):
    weight: jax.Array
    function: object = eqx.field(static=True)


class OpenModule(eqx.Module):
    weight: jax.Array
    function: object


X = jnp.array([[0.5, 0.25], [0.1, 0.9]])
of_each_callable = pytest.mark.parametrize("function", CALLABLES.values(), ids=CALLABLES)
of_each_copy = pytest.mark.parametrize(
    "copied",
    [pytest.param(make, marks=[pytest.mark.nightly] * (name != "deepcopy"), id=name) for name, make in COPIES.items()],
)


def copied_or_skip(function, copied):
    try:
        given = copied(function)
        given(X)
    except TypeError as error:  # as of a copy of a jax.custom_vjp
        pytest.skip(f"it cannot be copied: {error}")
    return given


def run_each(jit, models):
    """What the models give, and how often that was traced."""
    traces = TraceCounter()

    @jit
    def call(model, x):
        traces.tick()
        return model.function(x + model.weight), model

    return [call(model, X)[0] for model in models], traces.count


@of_each_callable
@of_each_copy
def test_it_works_in_a_model_and_is_traced_no_more_often(function, copied):
    functions = [function, copied_or_skip(function, copied), copied_or_skip(function, copied)]
    expected = function(X + 1.0)
    for kind in (Module, OpenModule):
        if kind is Module and isinstance(function, eqx.Module) and jax.tree.leaves(function):
            continue  # one with arrays is no static field
        models = [kind(jnp.float32(1.0), it) for it in functions]
        values, traces = run_each(partax.filter_jit, models)
        assert all(jnp.allclose(value, expected) for value in values)
        assert traces <= run_each(eqx.filter_jit, models)[1]


@of_each_callable
@of_each_copy
def test_it_works_as_an_argument_and_as_what_is_wrapped(function, copied):
    given = copied_or_skip(function, copied)
    expected = function(X)
    assert jnp.allclose(partax.filter_jit(lambda f, x: f(x))(given, X), expected)
    assert jnp.allclose(partax.filter_jit(given)(X), expected)
    assert jnp.allclose(partax.filter_checkpoint(given)(X), expected)
    assert jnp.allclose(partax.filter_jit(lambda x: given(x))(X), expected)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
@pytest.mark.parametrize("name", ["jax.nn.silu", "jnp.sin", "jax.jit", "jax.jit with options"])
def test_copies_of_one_function_are_one_function(name, copied):
    """As of a target network that is copied again in each step, which Equinox traces again each time."""
    models = [Module(jnp.float32(1.0), copied(CALLABLES[name])) for _ in range(4)]
    assert run_each(partax.filter_jit, models)[1] == 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_copies_of_different_functions_are_told_apart(copied):
    functions = [jax.nn.silu, jax.nn.relu, jnp.sin, jax.jit(double), jax.jit(lambda x: 3 * x)]
    models = [Module(jnp.float32(1.0), copied(it)) for it in functions]
    values, _ = run_each(partax.filter_jit, models)
    assert all(jnp.allclose(value, it(X + 1.0)) for value, it in zip(values, functions, strict=True))
