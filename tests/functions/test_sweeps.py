"""Guards the promise that a sweep which makes model, optimizer and step again for each setting is traced once for each
program, and never more often than with `jax.jit` or Equinox; and that of a step which is kept nothing is examined: it
may log, count its traces, read a config, or hold what changes.
"""

import dataclasses
import os
import random
import sys
import types
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


@patterns.add(theirs=2)
def seeds_with_a_logger(jit: Any, tick: Tick) -> Any:
    def run(seed: int) -> Any:
        optimizer = optax.chain(optax.clip(1.0), optax.sgd(optax.cosine_decay_schedule(0.1, 10)))
        return trained(step_of(jit, tick, optimizer, lambda: logger.info("tracing")), optimizer, seed)

    return [run(seed) for seed in range(2)]


@patterns.add(ours=2, theirs=4)
def learning_rates(jit: Any, tick: Tick) -> Any:
    """Two rates, each with two seeds."""

    def run(lr: float, seed: int) -> Any:
        optimizer = optax.adam(lr)
        return trained(step_of(jit, tick, optimizer), optimizer, seed)

    return [run(lr, seed) for lr in (1e-2, 1e-3) for seed in range(2)]


@patterns.add(ours=3, theirs=4)
def activations(jit: Any, tick: Tick) -> Any:
    optimizer = optax.sgd(0.1)
    step = step_of(jit, tick, optimizer)
    tables = [{"tanh": lambda v: jnp.tanh(v), "relu": jax.nn.relu, "sin": lambda v: jnp.sin(v)} for _ in range(2)]
    names = ("tanh", "relu", "sin", "tanh", "relu")
    return [trained(step, optimizer, 1, tables[n > 2][name]) for n, name in enumerate(names)]


@patterns.add(theirs=2)
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

    return [Trainer(0.1).fit() for _ in range(2)]


@patterns.add(theirs=2)
def checkpoints_in_fields(jit: Any, tick: Tick) -> Any:
    optimizer = optax.sgd(0.1)
    step = step_of(jit, tick, optimizer)
    acts = [jax.checkpoint(jax.jit(lambda v: jnp.sin(v))) for _ in range(2)]
    return [trained(step, optimizer, 1, act) for act in acts]


def train(step: Any, *rest: Any) -> list[Any]:
    """Two seeds, two batches each, of models that get a lambda of their own."""
    models = [Net(lambda v: v + 1, seed) for seed in range(2)]
    return [step(model, x + batch, *rest) for model in models for batch in range(2)]


@patterns.add(theirs=2)
def step_is_a_method_of_a_kept_trainer(jit: Any, tick: Tick) -> Any:
    class Trainer:
        def __init__(self) -> None:
            self.history: list[Any] = []
            self.step = jit(self._step)

        def _step(self, model: Net, x: Any) -> Any:
            tick()
            self.history.append(x.shape)
            return model(x)

    return train(Trainer().step)


@patterns.add(theirs=2)
def another_argument_is_an_object(jit: Any, tick: Tick) -> Any:
    """It counts by its own `==`, and is not read."""

    @dataclasses.dataclass(frozen=True)
    class Run:
        name: str
        stream: Any

        def __hash__(self) -> int:
            return hash(self.name)

    @jit
    def step(model: Net, x: Any, run: Run) -> Any:
        tick()
        return model(x)

    return train(step, Run("a", iter(())))


@patterns.each()
def test_a_sweep_is_traced_no_more_than_its_programs(pattern: Pattern) -> None:
    assert_counts(pattern)


# What the step holds, which is the same function throughout, does not count.
num_traces = 0
config = types.SimpleNamespace(lr=0.5, model=types.SimpleNamespace(width=3))
rng = np.random.default_rng(0)


def count_in_a_global() -> int:
    global num_traces
    num_traces += 1
    print("trace", num_traces, file=sys.stderr)
    return 1


# What the step does besides calling the model.
BESIDES: dict[str, Callable[[], Any]] = {
    "nothing": lambda: 1,
    "counts in a global": count_in_a_global,
    "reads a config": lambda: config.lr + config.model.width,
    "reads the environment": lambda: len(os.environ.get("NO_SUCH_VARIABLE", "1")),
    "draws a number": lambda: 1 + 0 * (rng.normal() + random.random()),
}


@pytest.mark.parametrize("act", BESIDES.values(), ids=BESIDES)
def test_what_the_step_does_besides_does_not_count(act: Callable[[], Any]) -> None:
    def program(jit: Any, tick: Tick) -> Any:
        @jit
        def step(model: Net, x: Any) -> Any:
            tick()
            return model(x) * act()

        return train(step)

    assert_counts(Pattern(program, 1, 2))


def test_the_count_of_traces_may_be_limited_by_equinox() -> None:
    @partax.filter_jit
    @eqx.debug.assert_max_traces(max_traces=1)
    def step(model: Net, x: Any) -> Any:
        return model(x)

    assert len(train(step)) == 4
