"""Healthy training steps of many kinds: partly frozen, in mixed precision, adversarial, by reinforcement."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from examining import Call, floats, ints
from healthy_program import built, healthy, random_key, squares, training
from jax import lax

import partax


def perceptron(inputs: int, outputs: int, width: int = 16, depth: int = 2) -> Any:
    return built(eqx.nn.MLP, inputs, outputs, width, depth)


@healthy
def filtered_gradient() -> Call:
    def step(model: Any, x: Any, y: Any) -> Any:
        slope = partax.filter_grad(squares)(model, x, y)
        return jax.tree.map(lambda w, g: w - 0.1 * g if eqx.is_array(w) else w, model, slope)

    return partax.filter_jit(step), (perceptron(4, 2), floats(8, 4), floats(8, 2))


@healthy
def accumulated_gradients() -> Call:
    optimiser = optax.adam(1e-3)

    def step(model: Any, state: Any, xs: Any, ys: Any) -> Any:
        def add(total: Any, batch: Any) -> Any:
            slope = eqx.filter_grad(squares)(model, *batch)
            return jax.tree.map(jnp.add, total, slope), None

        zeros = jax.tree.map(jnp.zeros_like, eqx.filter(model, eqx.is_inexact_array))
        slope, _ = lax.scan(add, zeros, (xs, ys))
        updates, state = optimiser.update(jax.tree.map(lambda g: g / 16, slope), state)
        return eqx.apply_updates(model, updates), state

    model = perceptron(4, 2)
    state = eqx.filter_eval_shape(lambda it: optimiser.init(eqx.filter(it, eqx.is_inexact_array)), model)
    return eqx.filter_jit(step), (model, state, floats(16, 8, 4), floats(16, 8, 2))


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
def variational_autoencoder() -> Call:
    model = {"encoder": perceptron(64, 16), "decoder": perceptron(8, 64)}

    def loss(model: Any, key: Any, x: Any) -> Any:
        mean, log_scale = jnp.split(jax.vmap(model["encoder"])(x), 2, axis=-1)
        code = mean + jnp.exp(log_scale) * jax.random.normal(key, mean.shape)
        scores = jax.vmap(model["decoder"])(code)
        rebuilt = optax.sigmoid_binary_cross_entropy(scores, x).sum(-1)
        divergence = 0.5 * jnp.sum(mean**2 + jnp.exp(2 * log_scale) - 1 - 2 * log_scale, -1)
        return jnp.mean(rebuilt + divergence)

    return training(model, optax.adam(1e-3), loss, random_key(), floats(8, 64))


@healthy
def adversarial_pair() -> Call:
    optimiser = optax.adam(2e-4, b1=0.5)

    def step(maker: Any, critic: Any, states: Any, key: Any, real: Any) -> Any:
        noise = jax.random.normal(key, (16, 4))

        def critic_loss(critic: Any) -> Any:
            made = jax.vmap(critic)(jax.vmap(maker)(noise))
            return jnp.mean(jax.nn.softplus(made)) + jnp.mean(jax.nn.softplus(-jax.vmap(critic)(real)))

        def maker_loss(maker: Any) -> Any:
            return jnp.mean(jax.nn.softplus(-jax.vmap(critic)(jax.vmap(maker)(noise))))

        updates, first = optimiser.update(eqx.filter_grad(maker_loss)(maker), states[0])
        changes, second = optimiser.update(eqx.filter_grad(critic_loss)(critic), states[1])
        return eqx.apply_updates(maker, updates), eqx.apply_updates(critic, changes), (first, second)

    maker, critic = perceptron(4, 32), perceptron(32, 1)
    init = lambda it: optimiser.init(eqx.filter(it, eqx.is_inexact_array))
    states = eqx.filter_eval_shape(init, maker), eqx.filter_eval_shape(init, critic)
    return eqx.filter_jit(step), (maker, critic, states, random_key(), floats(16, 32))


@healthy
def q_learning() -> Call:
    def loss(model: Any, target: Any, batch: Any) -> Any:
        best = jax.vmap(target)(batch["next"]).max(-1)
        wanted = batch["reward"] + 0.99 * (1 - batch["done"]) * lax.stop_gradient(best)
        taken = jnp.take_along_axis(jax.vmap(model)(batch["seen"]), batch["action"][:, None], 1)[:, 0]
        return optax.huber_loss(taken, wanted).mean()

    batch = {"seen": floats(32, 4), "next": floats(32, 4), "reward": floats(32), "done": floats(32), "action": ints(32)}
    return training(perceptron(4, 2), optax.adam(1e-3), loss, perceptron(4, 2), batch)


@healthy
def clipped_policy() -> Call:
    def loss(model: Any, seen: Any, action: Any, gain: Any, before: Any) -> Any:
        logits = jax.nn.log_softmax(jax.vmap(model)(seen))
        chance = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
        ratio = jnp.exp(chance - before)
        bounded = jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain)
        return -jnp.mean(bounded) + 0.01 * jnp.mean(jnp.sum(jnp.exp(logits) * logits, -1))

    data = floats(64, 4), ints(64), floats(64), floats(64)
    return training(perceptron(4, 3), optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4)), loss, *data)


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
def newton_step() -> Call:
    def step(w: Any, x: Any, y: Any) -> Any:
        loss = lambda it: jnp.mean(jax.nn.softplus(-y * (x @ it))) + 0.01 * jnp.sum(it**2)
        return w - jnp.linalg.solve(jax.hessian(loss)(w), jax.grad(loss)(w))

    return jax.jit(step), (floats(6), floats(32, 6), floats(32))


@healthy
def distillation() -> Call:
    """The teacher is an argument, not a constant."""

    def loss(student: Any, teacher: Any, x: Any) -> Any:
        wanted = jax.nn.softmax(lax.stop_gradient(jax.vmap(teacher)(x)) / 2)
        return optax.safe_softmax_cross_entropy(jax.vmap(student)(x) / 2, wanted).mean()

    return training(perceptron(8, 4), optax.adam(1e-3), loss, perceptron(8, 4, 64, 3), floats(16, 8))


@healthy
def denoising_diffusion() -> Call:
    def loss(model: Any, key: Any, x: Any) -> Any:
        a, b = jax.random.split(key)
        level = jax.random.uniform(a, (16, 1))
        noise = jax.random.normal(b, x.shape)
        mixed = jnp.sqrt(1 - level) * x + jnp.sqrt(level) * noise
        return jnp.mean((jax.vmap(model)(jnp.concatenate([mixed, level], 1)) - noise) ** 2)

    return training(perceptron(9, 8, 64, 3), optax.adamw(1e-3), loss, random_key(), floats(16, 8))


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
def meta_learning() -> Call:
    """The inner step is differentiated, for each task by `vmap`."""

    def loss(model: Any, x: Any, y: Any) -> Any:
        def adapted(x: Any, y: Any) -> Any:
            inner = eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, eqx.filter_grad(squares)(model, x, y)))
            return squares(inner, x, y)

        return jax.vmap(adapted)(x, y).mean()

    return training(perceptron(1, 1), optax.adam(1e-3), loss, floats(4, 10, 1), floats(4, 10, 1))


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
