"""The computations that the benchmarks time, each in four forms that do the same arithmetic.

floor      `jax.jit` on a flat tuple of arrays: the least that any filtered transformation can cost
jax.jit    `jax.jit` on the module's own pytree, its static leaves taken out beforehand
equinox    `equinox.filter_jit` on the module
partax     `partax.filter_jit` on the module
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import partax

FLOOR = "floor"
JAX_JIT = "jax.jit"
EQUINOX = "equinox"
PARTAX = "partax"
FORMS = (FLOOR, JAX_JIT, EQUINOX, PARTAX)


@dataclass(frozen=True)
class Library:
    """The pieces of a train step that each form takes from its own library."""

    value_and_grad: Callable[..., Any]
    partition: Callable[..., Any]
    combine: Callable[..., Any]
    apply_updates: Callable[..., Any]


def _value_and_grad_by_hand(loss: Callable[..., jax.Array]) -> Callable[..., Any]:
    """What a user of bare jax writes: differentiate the inexact arrays, close over the rest."""

    def value_and_grad(model: Any, *args: Any) -> Any:
        arrays, rest = eqx.partition(model, eqx.is_inexact_array)
        return jax.value_and_grad(lambda a: loss(eqx.combine(a, rest), *args))(arrays)

    return value_and_grad


def _apply_updates_by_hand(model: Any, updates: Any) -> Any:
    def add(update: Any, param: Any) -> Any:
        return param if update is None else param + update

    return jax.tree.map(add, updates, model, is_leaf=lambda x: x is None)


_BY_HAND = Library(_value_and_grad_by_hand, eqx.partition, eqx.combine, _apply_updates_by_hand)
LIBRARIES = {
    FLOOR: _BY_HAND,
    JAX_JIT: _BY_HAND,
    EQUINOX: Library(eqx.filter_value_and_grad, eqx.partition, eqx.combine, eqx.apply_updates),
    PARTAX: Library(partax.filter_value_and_grad, partax.partition, partax.combine, partax.apply_updates),
}


@dataclass(frozen=True)
class Form:
    """One form of a computation: call `fn(*state, *rest)`."""

    fn: Callable[..., Any]
    state: tuple[Any, ...]
    """Pytrees as this form takes them; the floor has them all in one flat tuple of arrays."""


def arrays_of(tree: Any) -> list[jax.Array]:
    return jax.tree.leaves(eqx.filter(tree, eqx.is_array))


def four_forms(make: Callable[[str], Callable[..., Any]], *state: Any) -> dict[str, Form]:
    """Build the four forms of `make(form)`, a function of `(*state, *arrays)`, all newly jitted."""
    leaves, treedef = jax.tree.flatten(state)
    places = [place for place, leaf in enumerate(leaves) if eqx.is_array(leaf)]
    arrays, static = eqx.partition(state, eqx.is_array)
    floor_fn, jit_fn = make(FLOOR), make(JAX_JIT)

    @jax.jit
    def on_flat(flat: tuple[jax.Array, ...], *rest: Any) -> Any:
        full = list(leaves)
        for place, array in zip(places, flat, strict=True):
            full[place] = array
        out = jax.tree.leaves(floor_fn(*jax.tree.unflatten(treedef, full), *rest))
        out = tuple(leaf for leaf in out if eqx.is_array(leaf))
        return out[0] if len(out) == 1 else out

    @jax.jit
    def on_pytrees(*args: Any) -> Any:
        full = eqx.combine(args[: len(state)], static)
        return eqx.filter(jit_fn(*full, *args[len(state) :]), eqx.is_array)

    return {
        FLOOR: Form(on_flat, (tuple(leaves[place] for place in places),)),
        JAX_JIT: Form(on_pytrees, arrays),
        EQUINOX: Form(eqx.filter_jit(make(EQUINOX)), state),
        PARTAX: Form(partax.filter_jit(make(PARTAX)), state),
    }


class Scale(eqx.Module):
    """The smallest module that has an array."""

    factor: jax.Array


class Affine(eqx.Module):
    """A module of two arrays and a static field."""

    weight: jax.Array
    bias: jax.Array
    size: int = eqx.field(static=True, default=1)


def mlp(
    *,
    depth: int,
    width: int,
    in_size: int | None = None,
    out_size: int | None = None,
    seed: int = 0,
) -> eqx.nn.MLP:
    """An Equinox MLP of `depth` hidden layers: `2 * depth + 2` arrays."""
    return eqx.nn.MLP(in_size or width, out_size or width, width, depth, key=jax.random.key(seed))


def adam_state(optimizer: optax.GradientTransformation, model: Any) -> Any:
    """Two moments per inexact array of `model`, and a counter."""
    return optimizer.init(eqx.filter(model, eqx.is_inexact_array))


def last_weight(model: eqx.nn.MLP) -> jax.Array:
    """An array that a train step computes, even where the first layers are frozen."""
    return model.layers[-1].weight


def forward(model: eqx.nn.MLP, x: jax.Array) -> jax.Array:
    return model(x)


def mean_square(model: eqx.nn.MLP, x: jax.Array) -> jax.Array:
    return jnp.mean(jax.vmap(model)(x) ** 2)


def scalar_of_little(model: Any, opt_state: Any, x: jax.Array) -> jax.Array:
    """Takes every array and computes next to nothing, so that the call itself is what is timed."""
    return jnp.sum(x) + opt_state[0].count


def first_leaf(model: Any) -> jax.Array:
    """Computes next to nothing of the first of many arrays."""
    return jax.tree.leaves(model)[0] + 1


def train_step(library: Library, optimizer: optax.GradientTransformation) -> Callable[..., tuple[Any, Any]]:
    """One Adam step on the whole model."""

    def step(model: eqx.nn.MLP, opt_state: Any, x: jax.Array) -> tuple[Any, Any]:
        _, grads = library.value_and_grad(mean_square)(model, x)
        updates, opt_state = optimizer.update(grads, opt_state)
        return library.apply_updates(model, updates), opt_state

    return step


def second_half(model: eqx.nn.MLP) -> Any:
    """A filter specification: True for the arrays of the second half of the layers."""
    frozen = len(model.layers) // 2
    trained = jax.tree.map(eqx.is_array, model.layers[frozen:])
    nothing = jax.tree.map(lambda _: False, model)
    return eqx.tree_at(lambda m: m.layers[frozen:], nothing, trained)


def frozen_train_step(
    library: Library, optimizer: optax.GradientTransformation, spec: Any
) -> Callable[..., tuple[Any, Any]]:
    """One Adam step on the part that `spec` selects; the whole model comes back."""

    def step(model: eqx.nn.MLP, opt_state: Any, x: jax.Array) -> tuple[Any, Any]:
        trained, frozen = library.partition(model, spec)

        def loss(trained: Any) -> jax.Array:
            return mean_square(library.combine(trained, frozen), x)

        _, grads = library.value_and_grad(loss)(trained)
        updates, opt_state = optimizer.update(grads, opt_state)
        return library.combine(library.apply_updates(trained, updates), frozen), opt_state

    return step


def static_list(size: int) -> list[Any]:
    """One array and `size` static leaves, distinct objects beyond the interned small integers."""
    return [jnp.ones(()), *range(size)]


class Plain:
    """An object with a dictionary, as most classes of users make them."""


class Slotted:
    __slots__ = ("value",)


class Mode(enum.Enum):
    FAST = "fast"


def object_list(size: int) -> list[Any]:
    """One array and `size` objects with dictionaries."""
    return [jnp.ones(()), *(Plain() for _ in range(size))]


def mixed_list(size: int) -> list[Any]:
    """One array and `size` static leaves of ten types in turns."""
    kinds: tuple[Callable[[int], Any], ...] = (
        *(int, float, str, lambda i: str(i).encode(), lambda i: Plain(), lambda i: Slotted()),
        *(lambda i: Mode.FAST, lambda i: jnp.sin, lambda i: len, lambda i: lambda: i),
    )
    return [jnp.ones(()), *(kinds[i % len(kinds)](i) for i in range(size))]


def long_computation(linear: eqx.nn.Linear, x: jax.Array) -> jax.Array:
    """A thousand matrix products in a row: far longer than any dispatch."""
    return jax.lax.fori_loop(0, 1_000, lambda _, y: jnp.tanh(y @ linear.weight), x)


def train_forms(model: eqx.nn.MLP, *, frozen: bool = False) -> dict[str, Form]:
    """The Adam step of `model` in its four forms; `frozen` trains the second half of the layers."""
    optimizer = optax.adam(1e-3)
    if not frozen:
        state = adam_state(optimizer, model)
        return four_forms(lambda form: train_step(LIBRARIES[form], optimizer), model, state)

    spec = second_half(model)

    def make(form: str) -> Callable[..., Any]:
        return frozen_train_step(LIBRARIES[form], optimizer, spec)

    return four_forms(make, model, adam_state(optimizer, eqx.filter(model, spec)))
