"""A module that creates its callables anew, and what each of them costs.

    python bench/stories/recreated_callables.py [--steps N] [--width N] [--quick]

A network is built in each step, as when hyperparameters are tried out: its activation is a new lambda each time. What a
trace depends on is what the lambda contains. partax explains each trace in one line; the report at the end says what
they have cost. Three ways to write it are compared: the slope in the closure, the slope as an array of the module, and
one function that is made once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import partax

try:
    import equinox as eqx
except ImportError as error:
    raise SystemExit(f'This story needs {error.name}: run pip install "partax[bench]"') from error


class Network(eqx.Module):
    """Two layers and an activation, which may be a function or a module."""

    first: jax.Array
    second: jax.Array
    activation: Callable[[jax.Array], jax.Array]

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.activation(x @ self.first) @ self.second


class Leaky(eqx.Module):
    """An activation with its slope as an array, which is traced."""

    slope: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.where(x > 0, x, self.slope * x)


def leaky(slope: Any) -> Callable[[jax.Array], jax.Array]:
    """An activation with its slope in its closure, which is a static value."""
    return lambda x: jnp.where(x > 0, x, slope * x)


ONCE = leaky(0.1)
WAYS: dict[str, Callable[[float], Any]] = {
    "a lambda with another slope each time": leaky,
    "a lambda with the same slope each time": lambda _: leaky(0.1),
    "a function that is made once": lambda _: ONCE,
    "a module that holds the slope as an array": lambda slope: Leaky(jnp.asarray(slope)),
}


def new_loss() -> Any:
    """The compiled function, with no trace yet."""

    @partax.filter_jit
    def loss(network: Network, x: jax.Array) -> jax.Array:
        return jnp.mean(network(x) ** 2)

    loss.clear_cache()  # this function, too, means the same as the one of the way before
    return loss


def main() -> None:
    """Runs the story."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6, help="networks that are built in each way")
    parser.add_argument("--width", type=int, default=256, help="width of the layers")
    parser.add_argument("--quick", action="store_true", help="as small as it makes sense")
    given = parser.parse_args()
    steps, width = (3, 8) if given.quick else (given.steps, given.width)
    first, second = jax.random.split(jax.random.key(0))
    x = jnp.ones((32, width))
    weights = jax.random.normal(first, (width, width)), jax.random.normal(second, (width, width))

    for way, activation in WAYS.items():
        print(f"\n{way}:", flush=True)
        loss = new_loss()
        start = time.perf_counter()
        with partax.explain():
            for step in range(steps):
                loss(Network(*weights, activation(0.1 * (step + 1))), x).block_until_ready()
        print(f"{loss.cache_info().traces} traces in {steps} calls, {time.perf_counter() - start:.3f} s")
        print(loss.report())


if __name__ == "__main__":
    main()
