"""A sweep of what a call costs that traces again: a function is re-created, a static value has changed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import partax
import workloads as work
from interleave import Effort, take_turns
from points import Point, Sweep, seconds
from workloads import EQUINOX, JAX_JIT, PARTAX

SAME = "nothing has changed"
KNOWN = "a static value that was seen before"
NEW_WRAPPER = "the function is re-created and wrapped again"
NEW_ARGUMENT = "a lambda in an argument is re-created"
NEW = "a static value that is new"
CASES = (SAME, KNOWN, NEW_WRAPPER, NEW_ARGUMENT, NEW)
Fn = Callable[..., jax.Array]


def new_step() -> Fn:
    """The loss and the gradient of a model, for a static number and a static function."""

    def step(arrays: Any, x: jax.Array, power: int, activation: Callable[[Any], Any]) -> jax.Array:
        def loss(layers: Any) -> jax.Array:
            y = x
            for weight, bias in layers:
                y = activation(weight @ y + bias)
            return jnp.sum(y) * power

        value, gradient = jax.value_and_grad(loss)(arrays)
        return value + jnp.sum(gradient[0][1])

    return step


JITS: dict[str, Callable[[Fn], Fn]] = {
    JAX_JIT: partial(jax.jit, static_argnums=(2, 3)),
    EQUINOX: eqx.filter_jit,
    PARTAX: partax.filter_jit,
}


def activation() -> Callable[[Any], Any]:
    return lambda x: jnp.tanh(x)


def cases(jit: Callable[[Fn], Fn], arrays: Any, x: jax.Array) -> dict[str, Callable[[], jax.Array]]:
    """A call for each, after all of them have been made once."""
    kept, tanh, numbers = jit(new_step()), activation(), count(3)
    turns = iter(count())
    return {
        SAME: lambda: kept(arrays, x, 1, tanh),
        KNOWN: lambda: kept(arrays, x, 1 + next(turns) % 2, tanh),
        NEW_WRAPPER: lambda: jit(new_step())(arrays, x, 1, tanh),
        NEW_ARGUMENT: lambda: kept(arrays, x, 1, activation()),
        NEW: lambda: kept(arrays, x, next(numbers), tanh),
    }


def seconds_of(call: Callable[[], jax.Array]) -> float:
    begin = time.perf_counter()
    call().block_until_ready()
    return time.perf_counter() - begin


def of_layers(effort: Effort, depth: int) -> Sequence[Point]:
    """A call until its result is there, which traces and compiles a model of so many layers or does not."""
    arrays = [(layer.weight, layer.bias) for layer in work.mlp(depth=depth - 1, width=32).layers]
    x = jnp.ones(32)
    calls = {form: cases(jit, arrays, x) for form, jit in JITS.items()}
    found: list[Point] = []
    for case in CASES:
        measures = {form: partial(seconds_of, calls[form][case]) for form in JITS}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", partax.RetraceWarning)  # which says what is measured here
            for measure in measures.values():
                for _ in range(2):  # The values that are known later, and what is loaded once per process.
                    measure()
            timings = take_turns(measures, effort.slow_rounds(15))
        found += seconds(case, depth, timings)
    return found


RETRACES = Sweep("retraces", "layers", (8,), (8,), of_layers)
