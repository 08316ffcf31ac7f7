"""Healthy programs: training steps of plain JAX, statistics, physics, filters, samplers, images, linear algebra."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from examining import Call, floats, ints
from healthy_program import built, healthy, random_key, training
from jax import lax


def perceptron(inputs: int, outputs: int, width: int = 16, depth: int = 2) -> Any:
    return built(eqx.nn.MLP, inputs, outputs, width, depth)


@healthy
def mixed_precision() -> Call:
    def loss(model: Any, x: Any, y: Any) -> Any:
        half = jax.tree.map(lambda leaf: leaf.astype("bfloat16") if eqx.is_inexact_array(leaf) else leaf, model)
        out = jax.vmap(half)(x.astype("bfloat16"))
        return jnp.mean((out.astype("float32") - y) ** 2)

    return training(perceptron(32, 8, 64), optax.adamw(1e-3), loss, floats(16, 32), floats(16, 8))


@healthy
def low_rank_adaptation() -> Call:
    """The base is frozen and comes in as an argument of its own."""

    def loss(parts: Any, base: Any, x: Any, y: Any) -> Any:
        weights = base + parts["up"] @ parts["down"]
        return jnp.mean((x @ weights - y) ** 2)

    parts = {"up": floats(64, 4), "down": floats(4, 32)}
    jit = partial(jax.jit, donate_argnums=(0, 1))
    return training(parts, optax.adam(1e-3), loss, floats(64, 32), floats(8, 64), floats(8, 32), jit=jit)


@healthy
def epoch_in_one_scan() -> Call:
    optimiser = optax.adam(1e-3)

    def epoch(parameters: Any, state: Any, xs: Any, ys: Any) -> Any:
        def step(carry: Any, batch: Any) -> Any:
            parameters, state = carry
            loss = lambda it: jnp.mean((batch[0] @ it["w"] + it["b"] - batch[1]) ** 2)
            value, slope = jax.value_and_grad(loss)(parameters)
            updates, state = optimiser.update(slope, state)
            return (optax.apply_updates(parameters, updates), state), value

        return lax.scan(step, (parameters, state), (xs, ys))

    parameters = {"w": floats(8, 2), "b": floats(2)}
    state = jax.eval_shape(optimiser.init, parameters)
    return jax.jit(epoch), (parameters, state, floats(100, 16, 8), floats(100, 16, 2))


@healthy
def line_search() -> Call:
    optimiser = optax.lbfgs(memory_size=4)

    def step(x: Any, state: Any, matrix: Any) -> Any:
        loss = lambda it: jnp.sum((matrix @ it - 1.0) ** 2)
        value, slope = jax.value_and_grad(loss)(x)
        updates, state = optimiser.update(slope, state, x, value=value, grad=slope, value_fn=loss)
        return optax.apply_updates(x, updates), value

    return jax.jit(step), (floats(5), jax.eval_shape(optimiser.init, floats(5)), floats(5, 5))


@healthy
def normalising_flow() -> Call:
    """Three layers in a Python loop are too few to matter."""

    def loss(layers: Any, x: Any) -> Any:
        log_density = jnp.zeros(16)
        for at, layer in enumerate(layers):
            left, right = jnp.split(x if at % 2 else x[:, ::-1], 2, -1)
            shift, log_scale = jnp.split(jax.vmap(layer)(left), 2, -1)
            x = jnp.concatenate([left, right * jnp.exp(jnp.tanh(log_scale)) + shift], -1)
            log_density = log_density + jnp.tanh(log_scale).sum(-1)
        return -jnp.mean(log_density - 0.5 * jnp.sum(x**2, -1))

    layers = [perceptron(4, 8, 16, 1) for _ in range(3)]
    return training(layers, optax.adam(1e-3), loss, floats(16, 8))


@healthy
def regression_on_a_large_table() -> Call:
    """1.9 GB of data, which come in as an argument and stay."""

    def step(w: Any, x: Any, y: Any) -> Any:
        value, slope = jax.value_and_grad(lambda it: jnp.mean((x @ it - y) ** 2))(w)
        return w - 0.1 * slope, value

    return jax.jit(step, donate_argnums=0), (floats(8563), floats(54203, 8563), floats(54203))


@healthy
def decoding_with_a_cache() -> Call:
    """The cache is given away and comes back; the weights stay."""

    def decode(weights: Any, cache: Any, at: Any, x: Any) -> Any:
        cache = {name: lax.dynamic_update_index_in_dim(cache[name], x @ weights[name], at, 1) for name in cache}
        scores = jnp.einsum("bd,btd->bt", x @ weights["query"], cache["key"]) / 32
        seen = jnp.where(jnp.arange(2048) <= at, scores, -jnp.inf)
        return cache, jnp.einsum("bt,btd->bd", jax.nn.softmax(seen), cache["value"]) @ weights["out"], at + 1

    weights = {name: floats(1024, 1024) for name in ("query", "key", "value", "out")}
    cache = {name: floats(16, 2048, 1024) for name in ("key", "value")}
    return jax.jit(decode, donate_argnums=1), (weights, cache, ints(), floats(16, 1024))


@healthy
def neural_differential_equation() -> Call:
    def solve(weights: Any, y: Any) -> Any:
        field = lambda y: jnp.tanh(y @ weights["in"]) @ weights["out"]

        def step(y: Any, _: Any) -> Any:
            a = field(y)
            b = field(y + 0.05 * a)
            c = field(y + 0.05 * b)
            d = field(y + 0.1 * c)
            return y + 0.1 / 6 * (a + 2 * b + 2 * c + d), y

        return lax.scan(step, y, None, length=50)[1]

    loss = lambda weights, y, path: jnp.mean((solve(weights, y) - path) ** 2)
    return jax.jit(jax.grad(loss)), ({"in": floats(2, 16), "out": floats(16, 2)}, floats(2), floats(50, 2))


@healthy
def hamiltonian_monte_carlo() -> Call:
    def energy(x: Any, scale: Any) -> Any:
        return 0.5 * jnp.sum((x / scale) ** 2)

    def step(key: Any, x: Any, scale: Any) -> Any:
        a, b = jax.random.split(key)
        start = jax.random.normal(a, x.shape)

        def leap(_: Any, state: Any) -> Any:
            x, p = state
            p = p - 0.05 * jax.grad(energy)(x, scale)
            x = x + 0.1 * p
            return x, p - 0.05 * jax.grad(energy)(x, scale)

        new, end = lax.fori_loop(0, 10, leap, (x, start))
        gain = energy(x, scale) + 0.5 * jnp.sum(start**2) - energy(new, scale) - 0.5 * jnp.sum(end**2)
        return jnp.where(jnp.log(jax.random.uniform(b)) < gain, new, x)

    return jax.jit(step), (random_key(), floats(4), floats(4))


@healthy
def gradient_of_a_solve() -> Call:
    """It holds the operator nine times, and compiles it four times."""

    def apply(u: Any) -> Any:
        return 4.1 * u - jnp.roll(u, 1, 0) - jnp.roll(u, -1, 0) - jnp.roll(u, 1, 1) - jnp.roll(u, -1, 1)

    def total(b: Any) -> Any:
        return jnp.sum(jax.scipy.sparse.linalg.cg(apply, b, tol=1e-5, maxiter=200)[0] ** 2)

    return jax.jit(jax.grad(total)), (floats(16, 16),)


@healthy
def differential_equation() -> Call:
    """The stages of the solver are the library's to repeat."""
    diffrax = pytest.importorskip("diffrax")

    def solve(start: Any, rates: Any) -> Any:
        def field(t: Any, y: Any, args: Any) -> Any:
            return jnp.stack([args[0] * y[0] - y[0] * y[1], y[0] * y[1] - args[1] * y[1]])

        save, control = diffrax.SaveAt(ts=jnp.linspace(0, 10, 50)), diffrax.PIDController(1e-4, 1e-4)
        term, options = diffrax.ODETerm(field), {"saveat": save, "stepsize_controller": control}
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0, 10, 0.1, start, args=rates, **options).ys

    return eqx.filter_jit(solve), (floats(2), floats(2))
