"""Guards the promise that the doctor is silent on healthy programs, such as users of Equinox, Flax and jax write."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from examining import floats
from flax import nnx

import partax
from partax import filter_jit

Call = tuple[Callable[..., Any], tuple[Any, ...]]  # a function and its arguments
MEMORY = 80 << 30  # of the machine that the programs are for, whichever runs the tests


def built(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `make` builds with a key, as types: nothing is computed."""
    return eqx.filter_eval_shape(make, *args, **kwargs, key=jax.random.key(0))


def training(model: Any, optimiser: Any, loss: Callable[..., Any], *data: Any) -> Call:
    """A step as optax's and Equinox's users write it."""

    @filter_jit(donate="all")
    def step(model: Any, state: Any, *data: Any) -> Any:
        value, slope = eqx.filter_value_and_grad(loss)(model, *data)
        updates, state = optimiser.update(slope, state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state, value

    state = eqx.filter_eval_shape(lambda it: optimiser.init(eqx.filter(it, eqx.is_inexact_array)), model)
    return step, (model, state, *data)


class Block(eqx.Module):
    norms: tuple[Any, Any]
    attention: Any
    mlp: Any

    def __init__(self, key: Any, size: int = 32) -> None:
        a, b = jax.random.split(key)
        self.norms = eqx.nn.LayerNorm(size), eqx.nn.LayerNorm(size)
        self.attention = eqx.nn.MultiheadAttention(4, size, use_query_bias=True, use_output_bias=True, key=a)
        self.mlp = eqx.nn.MLP(size, size, 4 * size, 1, jax.nn.gelu, key=b)

    def __call__(self, x: Any) -> Any:
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


def deep_transformer_scanned() -> Call:
    """Twelve blocks of the size of a small language model, stacked; the state is donated."""

    def loss(blocks: Any, x: Any) -> Any:
        return jnp.mean(partax.scan_layers(blocks, x, call=lambda block, x: jax.vmap(block)(x), remat=True) ** 2)

    blocks = built(lambda key: eqx.filter_vmap(lambda key: Block(key, 768))(jax.random.split(key, 12)))
    return training(blocks, optax.adamw(1e-4), loss, floats(4, 256, 768))


class Dropped(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, rate: float = 0.1) -> None:
        self.first = nnx.Linear(8, 32, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)
        self.second = nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.second(self.dropout(nnx.gelu(self.first(x))))


def nnx_dropout() -> Call:
    """The model and its optimizer change in place."""

    @partax.nnx.jit
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        value, slope = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
        optimizer.update(model, slope)
        return value

    def make() -> Any:
        model = Dropped(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.sgd(0.1, 0.9), wrt=nnx.Param)

    return step, (*nnx.eval_shape(make), floats(16, 8), floats(16, 4))


@pytest.mark.parametrize("make", [deep_transformer_scanned, nnx_dropout])
def test_nothing_is_found_in_a_healthy_program(make: Callable[[], Call]) -> None:
    function, args = make()
    diagnosis = partax.doctor(function, *args, memory_limit=MEMORY)
    assert diagnosis.findings == (), str(diagnosis)
    assert int(diagnosis.figures["equations"]) > 0
