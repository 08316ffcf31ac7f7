"""Healthy programs of plain JAX: statistics, physics, filters, samplers, images, linear algebra."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examining import Call, floats, ints
from healthy_program import healthy, random_key
from jax import lax


@healthy
def logistic_regression() -> Call:
    def step(parameters: Any, x: Any, y: Any) -> Any:
        loss = lambda it: jnp.mean(jnp.logaddexp(0, -y * (x @ it["w"] + it["b"])))
        value, slope = jax.value_and_grad(loss)(parameters)
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, slope), value

    return jax.jit(step), ({"w": floats(8), "b": floats()}, floats(64, 8), floats(64))


@healthy
def k_means() -> Call:
    def cluster(points: Any, centres: Any) -> Any:
        def turn(_: Any, centres: Any) -> Any:
            nearest = jnp.argmin(jnp.sum((points[:, None] - centres) ** 2, -1), 1)
            total = jax.ops.segment_sum(points, nearest, 5)
            count = jax.ops.segment_sum(jnp.ones(len(points)), nearest, 5)
            return total / jnp.maximum(count, 1)[:, None]

        return lax.fori_loop(0, 20, turn, centres)

    return jax.jit(cluster), (floats(100, 2), floats(5, 2))


@healthy
def gaussian_process() -> Call:
    def log_likelihood(parameters: Any, x: Any, y: Any) -> Any:
        apart = (x[:, None] - x) / jnp.exp(parameters["scale"])
        covariance = jnp.exp(-0.5 * apart**2) + (1e-3 + jnp.exp(parameters["noise"])) * jnp.eye(len(x))
        factor = jax.scipy.linalg.cho_factor(covariance, lower=True)
        return 0.5 * y @ jax.scipy.linalg.cho_solve(factor, y) + jnp.sum(jnp.log(jnp.diag(factor[0])))

    return (
        jax.jit(jax.value_and_grad(log_likelihood)),
        ({"scale": floats(), "noise": floats()}, floats(50), floats(50)),
    )


@healthy
def convolution_by_transform() -> Call:
    def convolve(signal: Any, kernel: Any) -> Any:
        return jnp.fft.irfft(jnp.fft.rfft(signal) * jnp.fft.rfft(kernel, len(signal)), len(signal))

    return jax.jit(convolve), (floats(1024), floats(64))


@healthy
def transport_plan() -> Call:
    def plan(cost: Any) -> Any:
        def turn(potentials: Any, _: Any) -> Any:
            f, g = potentials
            f = -0.1 * jax.nn.logsumexp((g - cost) / 0.1, axis=1)
            return (f, -0.1 * jax.nn.logsumexp((f[:, None] - cost) / 0.1, axis=0)), None

        (f, g), _ = lax.scan(turn, (jnp.zeros(cost.shape[0]), jnp.zeros(cost.shape[1])), None, length=50)
        return jnp.exp((f[:, None] + g - cost) / 0.1)

    return jax.jit(plan), (floats(20, 30),)


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
def heat_equation() -> Call:
    def diffuse(heat: Any) -> Any:
        def step(heat: Any, _: Any) -> Any:
            around = jnp.roll(heat, 1, 0) + jnp.roll(heat, -1, 0) + jnp.roll(heat, 1, 1) + jnp.roll(heat, -1, 1)
            return heat + 0.1 * (around - 4 * heat), heat.mean()

        return lax.scan(step, heat, None, length=100)

    return jax.jit(diffuse), (floats(64, 64),)


@healthy
def bodies() -> Call:
    def simulate(positions: Any, speeds: Any, masses: Any) -> Any:
        def pull(positions: Any) -> Any:
            apart = positions[None] - positions[:, None]
            return jnp.einsum("ijk,ij,j->ik", apart, (jnp.sum(apart**2, -1) + 0.01) ** -1.5, masses)

        def step(state: Any, _: Any) -> Any:
            positions, speeds = state
            speeds = speeds + 0.005 * pull(positions)
            positions = positions + 0.01 * speeds
            return (positions, speeds + 0.005 * pull(positions)), None

        return lax.scan(step, (positions, speeds), None, length=100)[0]

    return jax.jit(simulate), (floats(16, 3), floats(16, 3), floats(16))


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
def kalman_filter() -> Call:
    def filtered(mean: Any, spread: Any, observed: Any) -> Any:
        move, see = jnp.array([[1.0, 0.1], [0.0, 1.0]]), jnp.array([[1.0, 0.0]])

        def step(state: Any, seen: Any) -> Any:
            mean, spread = state
            mean, spread = move @ mean, move @ spread @ move.T + 0.01 * jnp.eye(2)
            gain = spread @ see.T @ jnp.linalg.inv(see @ spread @ see.T + 0.1)
            mean = mean + gain @ (seen - see @ mean)
            return (mean, (jnp.eye(2) - gain @ see) @ spread), mean

        return lax.scan(step, (mean, spread), observed)[1]

    return jax.jit(filtered), (floats(2), np.eye(2, dtype=np.float32), floats(100, 1))


@healthy
def particle_filter() -> Call:
    def filtered(key: Any, particles: Any, observed: Any) -> Any:
        def step(particles: Any, now: Any) -> Any:
            key, seen = now
            a, b = jax.random.split(key)
            particles = particles + 0.1 * jax.random.normal(a, particles.shape)
            chosen = jax.random.categorical(b, -((particles - seen) ** 2), shape=particles.shape)
            return particles[chosen], particles.mean()

        return lax.scan(step, particles, (jax.random.split(key, 50), observed))[1]

    return jax.jit(filtered), (random_key(), floats(100), floats(50))


@healthy
def augmented_images() -> Call:
    def augment(key: Any, image: Any) -> Any:
        a, b, c = jax.random.split(key, 3)
        image = jnp.where(jax.random.bernoulli(a), image[:, ::-1], image)
        row, column = jax.random.randint(b, (2,), 0, 8)
        image = lax.dynamic_slice(jnp.pad(image, ((4, 4), (4, 4), (0, 0))), (row, column, 0), image.shape)
        return jnp.clip(image * jax.random.uniform(c, (), minval=0.8, maxval=1.2), 0, 1)

    many = lambda key, images: jax.vmap(augment)(jax.random.split(key, 16), images)
    return jax.jit(many), (random_key(), floats(16, 32, 32, 3))


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


@healthy
def game_of_life() -> Call:
    def live(board: Any) -> Any:
        def turn(board: Any, _: Any) -> Any:
            kernel = jnp.ones((1, 1, 3, 3)).at[0, 0, 1, 1].set(0)
            around = lax.conv(board[None, None], kernel, (1, 1), "SAME")[0, 0]
            return jnp.where((around == 3) | ((around == 2) & (board > 0)), 1.0, 0.0), None

        return lax.scan(turn, board, None, length=30)[0]

    return jax.jit(live), (floats(64, 64),)


@healthy
def discounted_sums() -> Call:
    def discounted(rewards: Any) -> Any:
        pairs = jnp.full_like(rewards, 0.99), rewards
        return lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), pairs, reverse=True)[1]

    return jax.jit(discounted), (floats(256),)


@healthy
def best_of_all() -> Call:
    def best(scores: Any, ids: Any) -> Any:
        values, at = lax.top_k(scores, 5)
        return values, jnp.take_along_axis(ids, at, 1), jnp.sort(scores, 1)[:, ::-1][:, :5]

    return jax.jit(best), (floats(8, 100), ints(8, 100))


@healthy
def option_price() -> Call:
    def price(spot: Any, volatility: Any, key: Any) -> Any:
        noise = jax.random.normal(key, (2000,))
        end = spot * jnp.exp(-0.5 * volatility**2 + volatility * noise)
        return jnp.mean(jnp.maximum(end - 1.0, 0))

    return jax.jit(jax.value_and_grad(price, argnums=(0, 1))), (floats(), floats(), random_key())


@healthy
def edit_distance() -> Call:
    def distance(a: Any, b: Any) -> Any:
        def row(above: Any, letter: Any) -> Any:
            def cell(left: Any, now: Any) -> Any:
                corner, up, other = now
                value = jnp.minimum(jnp.minimum(left, up) + 1, corner + (letter != other))
                return value, value

            first = above[0] + 1
            _, rest = lax.scan(cell, first, (above[:-1], above[1:], b))
            return jnp.concatenate([first[None], rest]), None

        return lax.scan(row, jnp.arange(len(b) + 1), a)[0][-1]

    return jax.jit(distance), (ints(30), ints(40))
