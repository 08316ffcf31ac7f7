"""Guards the promise that a re-created function in a model makes nothing else be examined: the step may log, count its
traces, read a config, or hold what changes, and is traced once, as with a kept function.
"""

import argparse
import collections
import dataclasses
import functools
import os
import random
import sys
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from functions_counted import Pattern, Patterns, Tick, assert_counts, logger

x = jnp.arange(3.0)
patterns = Patterns()


class Net(eqx.Module):
    w: jax.Array
    act: Callable[..., Any] = eqx.field(static=True)

    def __init__(self, act: Callable[..., Any], seed: int = 0) -> None:
        self.w = jnp.arange(3.0) + seed
        self.act = act

    def __call__(self, x: Any) -> Any:
        return self.act(self.w * x)


def train(step: Any, *rest: Any, make: Callable[[int], Any] | None = None) -> list[Any]:
    """Four seeds, two batches each, of models that get a lambda of their own."""
    make = make or (lambda seed: Net(lambda v: v + 1, seed))
    return [step(model, x + batch, *rest) for model in map(make, range(4)) for batch in range(2)]


# What the step holds, which is the same function throughout, does not count.
num_traces = 0
calls: list[Any] = []
per_shape: collections.Counter[Any] = collections.Counter()
config = types.SimpleNamespace(lr=0.5, model=types.SimpleNamespace(width=3))
arguments = argparse.Namespace(lr=0.5, epochs=3)
rng = np.random.default_rng(0)


def count_in_a_global() -> int:
    global num_traces
    num_traces += 1
    print("trace", num_traces, file=sys.stderr)
    return 1


def warn_of_the_clock() -> int:
    start = time.time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn(f"tracing took {time.time() - start}", stacklevel=1)
    return 1


# What the step does besides calling the model.
BESIDES: dict[str, Callable[[], Any]] = {
    "nothing": lambda: 1,
    "logs": lambda: logger.info("tracing") or 1,
    "counts in a global": count_in_a_global,
    "counts in a list": lambda: calls.append(len(calls)) or 1,
    "counts in a counter": lambda: per_shape.update([3]) or 1,
    "reads a config": lambda: config.lr + config.model.width,
    "reads parsed arguments": lambda: arguments.lr,
    "reads the environment": lambda: len(os.environ.get("NO_SUCH_VARIABLE", "1")),
    "warns and looks at a clock": warn_of_the_clock,
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

    assert_counts(Pattern(program, 1, 4, None))


@patterns.add(theirs=4)
def step_holds_a_loop_variable(jit: Any, tick: Tick) -> Any:
    results: list[Any] = []

    @jit
    def step(model: Net, x: Any) -> Any:
        tick()
        return model(x) + 0 * len(results)

    for _ in range(4):
        results.append(step(Net(lambda v: v + 1), x))
    return results


@patterns.add(theirs=4)
def step_is_under_a_precision(jit: Any, tick: Tick) -> Any:
    @jit
    def step(model: Net, x: Any) -> Any:
        tick()
        with jax.default_matmul_precision("float32"), jax.named_scope("step"):
            return model(x) @ x

    return train(step)


@patterns.add(theirs=4)
def step_is_timed_by_a_decorator(jit: Any, tick: Tick) -> Any:
    def timed(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            start = time.perf_counter()
            result = function(*args)
            logger.info("%s took %s", function.__name__, time.perf_counter() - start)
            return result

        return wrapper

    @jit
    @timed
    def step(model: Net, x: Any) -> Any:
        tick()
        return model(x)

    return train(step)


@patterns.add(theirs=4)
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


@patterns.add(theirs=4)
def step_updates_with_a_kept_optimizer(jit: Any, tick: Tick) -> Any:
    optimizer = optax.adam(optax.cosine_decay_schedule(0.1, 10))

    @jit
    def step(model: Net, state: Any, x: Any) -> Any:
        tick()
        gradients = eqx.filter_grad(lambda model: jnp.sum(model(x) ** 2))(model)
        updates, state = optimizer.update(gradients, state)
        return eqx.apply_updates(model, updates), state

    results = []
    for seed in range(4):
        model = Net(lambda v: jnp.tanh(v), seed)
        state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
        for batch in range(3):
            model, state = step(model, state, x + batch)
        results.append(model.w)
    return results


@patterns.add(theirs=4)
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
def test_a_model_with_a_lambda_of_its_own_makes_one_trace(pattern: Pattern) -> None:
    assert_counts(pattern)


def test_the_count_of_traces_may_be_limited_by_equinox() -> None:
    import partax

    @partax.filter_jit
    @eqx.debug.assert_max_traces(max_traces=1)
    def step(model: Net, x: Any) -> Any:
        return model(x)

    assert len(train(step)) == 8


def test_what_the_step_reads_counts_no_more_than_in_jax_jit() -> None:
    """It is the same function, so it keeps its program, as in `jax.jit`, whatever it reads."""
    import partax

    scale = {"by": 1.0}
    ours, theirs = (jit(lambda x: x * scale["by"]) for jit in (partax.filter_jit, jax.jit))
    before = ours(x), theirs(x)
    scale["by"] = 2.0
    assert [*map(float, ours(x))] == [*map(float, theirs(x))] == [*map(float, before[0])]
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(ours(x), x * scale["by"])
