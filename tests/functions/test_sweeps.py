"""Guards the promise that a sweep which makes model, optimizer and step again for each setting is traced once for each
program, and never more often than with `jax.jit` or Equinox.
"""

import argparse
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partax
from functions_counted import Pattern, Patterns, Tick, assert_counts, logger

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")
x, y = jnp.arange(6.0).reshape(2, 3), jnp.ones((2, 3))
patterns = Patterns()


class Net(eqx.Module):
    w: jax.Array
    act: Callable[..., Any] = eqx.field(static=True)

    def __init__(self, act: Callable[..., Any], seed: int) -> None:
        self.w = jnp.arange(3.0) + seed
        self.act = act

    def __call__(self, x: Any) -> Any:
        return self.act(self.w * x)


@dataclasses.dataclass
class Config:
    lr: float = 0.1
    width: int = 3


def loss_of(model: Net, x: Any, y: Any) -> Any:
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def trained(step: Any, optimizer: Any, seed: int, act: Any = None) -> Any:
    model = Net(act or (lambda v: jnp.tanh(v)), seed)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    for _ in range(2):
        model, state = step(model, state, x, y)
    return model.w


def step_of(jit: Any, tick: Tick, optimizer: Any, before: Callable[[], Any] = lambda: None) -> Any:
    @jit
    def step(model: Net, state: Any, x: Any, y: Any) -> Any:
        tick()
        before()
        gradients = eqx.filter_grad(loss_of)(model, x, y)
        updates, state = optimizer.update(gradients, state)
        return eqx.apply_updates(model, updates), state

    return step


@patterns.add(theirs=4)
def seeds(jit: Any, tick: Tick) -> Any:
    optimizers = [optax.adam(1e-2) for _ in range(4)]
    return [trained(step_of(jit, tick, optimizer), optimizer, seed) for seed, optimizer in enumerate(optimizers)]


@patterns.add(theirs=4)
def seeds_with_a_logger(jit: Any, tick: Tick) -> Any:
    def run(seed: int) -> Any:
        optimizer = optax.chain(optax.clip(1.0), optax.sgd(optax.cosine_decay_schedule(0.1, 10)))
        return trained(step_of(jit, tick, optimizer, lambda: logger.info("tracing")), optimizer, seed)

    return [run(seed) for seed in range(4)]


@patterns.add(ours=2, theirs=4)
def learning_rates(jit: Any, tick: Tick) -> Any:
    """Two rates, each with two seeds."""

    def run(lr: float, seed: int) -> Any:
        optimizer = optax.adam(lr)
        return trained(step_of(jit, tick, optimizer), optimizer, seed)

    return [run(lr, seed) for lr in (1e-2, 1e-3) for seed in range(2)]


@patterns.add(ours=2, theirs=4)
def configs(jit: Any, tick: Tick) -> Any:
    def run(config: Config, seed: int) -> Any:
        @jit
        def step(model: Net, x: Any, y: Any) -> Any:
            tick()
            gradients = eqx.filter_grad(loss_of)(model, x, y)
            return eqx.apply_updates(model, jax.tree.map(lambda g: -config.lr * g, gradients))

        return step(Net(jnp.tanh, seed), x, y).w

    return [run(Config(lr=lr), seed) for lr in (0.1, 0.2) for seed in range(2)]


@patterns.add(ours=2, theirs=4)
def parsed_arguments(jit: Any, tick: Tick) -> Any:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)

    def main(argv: list[str]) -> Any:
        arguments = parser.parse_args(argv)

        @jit
        def step(w: Any) -> Any:
            tick()
            return w - arguments.lr * jax.grad(lambda w: jnp.sum(w**2))(w)

        return step(x)

    return [main(argv) for argv in ([], ["--lr", "0.5"], [], ["--lr", "0.5"])]


@patterns.add(ours=3, theirs=4)
def activations(jit: Any, tick: Tick) -> Any:
    optimizer = optax.sgd(0.1)
    step = step_of(jit, tick, optimizer)
    tables = [{"tanh": lambda v: jnp.tanh(v), "relu": jax.nn.relu, "sin": lambda v: jnp.sin(v)} for _ in range(2)]
    names = ("tanh", "relu", "sin", "tanh", "relu")
    return [trained(step, optimizer, 1, tables[n > 2][name]) for n, name in enumerate(names)]


@patterns.add(theirs=4)
def trainers(jit: Any, tick: Tick) -> Any:
    class Trainer:
        def __init__(self, lr: float) -> None:
            self.lr = lr
            self.step = jit(self._step)

        def _step(self, w: Any) -> Any:
            tick()
            return w - self.lr * w

        def fit(self) -> Any:
            w = x
            for _ in range(2):
                w = self.step(w)
            return w

    return [Trainer(0.1).fit() for _ in range(4)]


@patterns.add(theirs=4)
def folds(jit: Any, tick: Tick) -> Any:
    def train_fold(fold: int) -> Any:
        def predict(w: Any, x: Any) -> Any:
            return x * w

        @jit
        def update(w: Any, x: Any, y: Any) -> Any:
            tick()
            return w - jax.grad(lambda w: jnp.mean((predict(w, x) - y) ** 2))(w)

        logger.info("fold %d", fold)
        return update(jnp.ones(3), x + fold, y)

    return [train_fold(fold) for fold in range(4)]


@patterns.add(theirs=4)
def evaluations_of_one_model(jit: Any, tick: Tick) -> Any:
    model = Net(jnp.tanh, 1)

    def evaluate(x: Any) -> Any:
        @jit
        def predict(x: Any) -> Any:
            tick()
            return jax.vmap(model)(x)

        return predict(x)

    return [evaluate(x + n) for n in range(4)]


@patterns.add(theirs=4)
def partials_of_a_loss(jit: Any, tick: Tick) -> Any:
    @jit
    def fit(loss: Any, w: Any) -> Any:
        tick()
        return jax.grad(loss)(w)

    return [fit(functools.partial(lambda w, power: jnp.sum(w**power), power=2), x + n) for n in range(4)]


@patterns.add(theirs=4)
def checkpoints_in_fields(jit: Any, tick: Tick) -> Any:
    optimizer = optax.sgd(0.1)
    step = step_of(jit, tick, optimizer)
    acts = [jax.checkpoint(jax.jit(lambda v: jnp.sin(v))) for _ in range(4)]
    return [trained(step, optimizer, 1, act) for act in acts]


@patterns.add(theirs=4)
def normalizers_of_numpy_statistics(jit: Any, tick: Tick) -> Any:
    def run() -> Any:
        mean, std = np.arange(3) / 2, np.float64(2)

        @jit
        def normalize(x: Any) -> Any:
            tick()
            return (x - mean) / std

        return normalize(x)

    return [run() for _ in range(4)]


@patterns.add(theirs=1)
def a_closure_dict_that_the_loop_updates(jit: Any, tick: Tick) -> Any:
    """The function is the same object: what it holds is not looked at."""
    state = {"lr": 0.1, "epoch": 0}
    history: list[Any] = []

    @jit
    def step(w: Any) -> Any:
        tick()
        return w * state["lr"] + 0 * len(history)

    for epoch in range(4):
        state["epoch"] = epoch
        history.append(step(x))
    return history


@patterns.each()
def test_a_sweep_is_traced_no_more_than_its_programs(pattern: Pattern) -> None:
    assert_counts(pattern)


def test_a_result_has_the_function_of_its_own_call() -> None:
    def step(model: Net, x: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf + 1, model)

    for seed in range(3):
        model = Net(lambda v: jnp.tanh(v), seed)
        compiled = partax.filter_jit(lambda model, x: step(model, x))
        for _ in range(3):
            assert compiled(model, x).act is model.act
