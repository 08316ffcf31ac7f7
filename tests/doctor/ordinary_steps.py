"""Training steps as users of each library write them, small, with arrays: the doctor may find nothing in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from examining import Call, floats
from flax import nnx

OPTIMISER = optax.adam(1e-3)
INPUTS, TARGETS = floats(5, 4), floats(5, 3)


def equinox_step() -> Call:
    @eqx.filter_jit
    def step(model: Any, opt_state: Any, x: Any, y: Any) -> Any:
        def loss_of(model: Any) -> Any:
            return jnp.mean((jax.vmap(model)(x) - y) ** 2)

        loss, slope = eqx.filter_value_and_grad(loss_of)(model)
        updates, opt_state = OPTIMISER.update(slope, opt_state, model)
        return eqx.apply_updates(model, updates), opt_state, loss

    model = eqx.nn.MLP(4, 3, 8, 2, key=jax.random.key(0))
    return step, (model, OPTIMISER.init(eqx.filter(model, eqx.is_inexact_array)), INPUTS, TARGETS)


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first, self.last = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.last(self.dropout(nnx.relu(self.first(x))))


def nnx_step() -> Call:
    @nnx.jit
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        loss, slope = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
        optimizer.update(model, slope)
        return loss

    model = Network(nnx.Rngs(0))
    return step, (model, nnx.Optimizer(model, OPTIMISER, wrt=nnx.Param), INPUTS, TARGETS)


def dict_step() -> Call:
    @jax.jit
    def step(params: Any, opt_state: Any, x: Any, y: Any) -> Any:
        def loss_of(params: Any) -> Any:
            return jnp.mean((jnp.tanh(x @ params["w"] + params["b"]) - y) ** 2)

        loss, slope = jax.value_and_grad(loss_of)(params)
        updates, opt_state = OPTIMISER.update(slope, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    params = {"w": jnp.zeros((4, 3)), "b": jnp.zeros(3)}
    return step, (params, OPTIMISER.init(params), INPUTS, TARGETS)


def scan_step() -> Call:
    @jax.jit
    def step(w: Any, xs: Any) -> Any:
        def loss_of(w: Any) -> Any:
            def cell(h: Any, x: Any) -> Any:
                h = jnp.tanh(h @ w + x)
                return h, h.sum()

            h, sums = jax.lax.scan(cell, jnp.zeros(4), xs)
            return (h**2).sum() + sums.mean()

        loss, slope = jax.value_and_grad(loss_of)(w)
        return w - 0.1 * slope, loss

    return step, (jnp.zeros((4, 4)), floats(20, 4))


def diffrax_solve() -> Call:
    """The stages of the solver are the library's to repeat."""
    diffrax = pytest.importorskip("diffrax")

    @eqx.filter_jit
    def solve(start: Any, rates: Any) -> Any:
        def field(t: Any, y: Any, args: Any) -> Any:
            return jnp.stack([args[0] * y[0] - y[0] * y[1], y[0] * y[1] - args[1] * y[1]])

        save, control = diffrax.SaveAt(ts=jnp.linspace(0, 10, 50)), diffrax.PIDController(1e-4, 1e-4)
        term, solver = diffrax.ODETerm(field), diffrax.Tsit5()
        return diffrax.diffeqsolve(
            term, solver, 0, 10, 0.1, start, args=rates, saveat=save, stepsize_controller=control
        ).ys

    return solve, (jnp.ones(2), jnp.ones(2))


def conjugate_gradients() -> Call:
    """The gradient through a solve, which holds the operator nine times and compiles it four times."""

    def apply(u: Any) -> Any:
        return 4.1 * u - jnp.roll(u, 1, 0) - jnp.roll(u, -1, 0) - jnp.roll(u, 1, 1) - jnp.roll(u, -1, 1)

    def total(b: Any) -> Any:
        return jnp.sum(jax.scipy.sparse.linalg.cg(apply, b, tol=1e-5, maxiter=200)[0] ** 2)

    return jax.jit(jax.grad(total)), (floats(16, 16),)


STEPS: list[Callable[[], Call]] = [equinox_step, nnx_step, dict_step, scan_step, diffrax_solve, conjugate_gradients]
