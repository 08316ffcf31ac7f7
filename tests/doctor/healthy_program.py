"""What the tests know of a healthy program, and how such programs are declared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from examining import Call

from partax import filter_jit


@dataclasses.dataclass(frozen=True)
class Healthy:
    """A program that has nothing to mend; `make` gives the function and its arguments."""

    name: str
    make: Callable[[], Call]


CORPUS: list[Healthy] = []


def healthy(make: Callable[[], Call]) -> Callable[[], Call]:
    """Declares a program."""
    CORPUS.append(Healthy(make.__name__, make))
    return make


def random_key() -> Any:
    return jax.random.key(0)


def built(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `make` builds with a key, as types: nothing is computed."""
    return eqx.filter_eval_shape(make, *args, **kwargs, key=random_key())


def squares(model: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def training(model: Any, optimiser: Any, loss: Callable[..., Any], *data: Any, jit: Any = filter_jit) -> Call:
    """A step as optax's and Equinox's users write it."""

    def step(model: Any, state: Any, *data: Any) -> Any:
        value, slope = eqx.filter_value_and_grad(loss)(model, *data)
        updates, state = optimiser.update(slope, state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state, value

    state = eqx.filter_eval_shape(lambda it: optimiser.init(eqx.filter(it, eqx.is_inexact_array)), model)
    return jit(step), (model, state, *data)


def filled(tree: Any) -> Any:
    """The same with arrays of small positive numbers where there were types."""
    numbers = np.random.default_rng(0)

    def fill(leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(numbers.uniform(0.01, 0.2, leaf.shape), leaf.dtype)
        return jnp.zeros(leaf.shape, leaf.dtype)

    return jax.tree.map(fill, tree)
