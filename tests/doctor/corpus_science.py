"""Healthy programs of plain JAX: statistics, physics, filters, samplers, images, linear algebra."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from examining import Call, floats
from healthy_program import healthy, random_key
from jax import lax


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
