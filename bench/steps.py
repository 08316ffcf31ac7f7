"""What a step costs that runs with others in one call, by `partax.scan_steps`.

    python bench/steps.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

A loop of train steps over batches in memory, of NumPy as a loader gives them. The floor is `jax.jit` on the flat arrays
of model and optimizer. It is called for each batch, as `filter_jit` is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from flax import nnx

    import partax
    import partax.nnx
    from budgets import Measure, Row, as_row, run
    from interleave import Effort, Loop
    from train_digits import cross_entropy, load
    from workloads import FLOOR, PARTAX, arrays_of
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

STEPS = "partax.scan_steps"
FORMS = (FLOOR, PARTAX, STEPS)
SIZE = 64
"""Steps of a loop."""
IN_A_CALL = 32
optimizer = optax.adam(1e-3)
Batch = tuple[np.ndarray, np.ndarray]
Loss = Callable[[Any, Any, Any], jax.Array]


def squared(model: Any, x: Any, y: Any) -> jax.Array:
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def step_of(loss: Loss) -> Callable[..., Any]:
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        value, gradient = partax.filter_value_and_grad(loss)(model, x, y)
        updates, state = optimizer.update(gradient, state)
        return partax.apply_updates(model, updates), state, value

    return step


def loops(model: Any, loss: Loss, batches: list[Batch], size: int) -> dict[str, Loop]:
    """Each goes through the batches as often as it is asked for; the last one with so many steps in a call."""
    step = step_of(loss)
    begun = (model, optimizer.init(eqx.filter(model, eqx.is_inexact_array)))
    arrays, static = eqx.partition(begun, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)

    @jax.jit
    def flat(leaves: list[jax.Array], x: Any, y: Any) -> Any:
        model, state, value = step(*eqx.combine(jax.tree.unflatten(structure, leaves), static), x, y)
        return arrays_of((model, state)), value

    jitted = partax.filter_jit(step)

    def by_floor(count: int) -> None:
        carried = leaves
        for _ in range(count):
            for x, y in batches:
                carried, value = flat(carried, x, y)
        jax.block_until_ready((carried, value))

    def by_partax(count: int) -> None:
        carried = begun
        for _ in range(count):
            for x, y in batches:
                *carried, value = jitted(*carried, x, y)
        jax.block_until_ready((arrays_of(carried), value))

    chunks = partax.scan_steps(jitted, size)

    def by_steps(count: int) -> None:
        for model, state, values in chunks(*begun, over=batches * count):  # noqa: B007
            pass
        jax.block_until_ready((arrays_of((model, state)), values))

    return {FLOOR: by_floor, PARTAX: by_partax, STEPS: by_steps}


def measured(make: Callable[[], dict[str, Loop]], effort: Effort, name: str, budget: float) -> Row:
    timings = effort.timings(make(), calls_per_loop=SIZE)
    return as_row(name, timings, budget, f"x {FLOOR}", "a step", measured=timings[STEPS].over(timings[FLOOR]))


def deep(size: int = IN_A_CALL) -> dict[str, Loop]:
    model = eqx.nn.MLP(16, 16, 16, 64, key=jax.random.key(0))
    return loops(model, squared, [(np.ones((8, 16), np.float32), np.ones((8, 16), np.float32))] * SIZE, size)


def digits(size: int = IN_A_CALL) -> dict[str, Loop]:
    data = load(0)
    model = eqx.nn.MLP(64, 10, 64, 2, key=jax.random.key(0))
    chosen = [slice(20 * i, 20 * i + 20) for i in range(SIZE)]
    return loops(model, cross_entropy, [(data.train_x[it], data.train_y[it]) for it in chosen], size)


class Mlp(nnx.Module):
    """As deep and wide as that of Equinox."""

    def __init__(self, depth: int, width: int) -> None:
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(depth + 1)])

    def __call__(self, x: Any) -> Any:
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        return self.layers[-1](x)


def train(model: Mlp, state: Any, x: Any, y: Any) -> jax.Array:
    value, gradient = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
    state.update(model, gradient)
    return value


def in_place() -> dict[str, Loop]:
    """The floor is that of the same model in Equinox."""
    model = Mlp(64, 16)
    objects = model, nnx.Optimizer(model, optimizer, wrt=nnx.Param)
    batches: list[Batch] = [(np.ones((8, 16), np.float32), np.ones((8, 16), np.float32))] * SIZE
    jitted = partax.nnx.jit(train)
    chunks = partax.scan_steps(jitted, IN_A_CALL)

    def by_partax(count: int) -> None:
        for _ in range(count):
            for batch in batches:
                value = jitted(*objects, *batch)
        value.block_until_ready()

    def by_steps(count: int) -> None:
        for values in chunks(*objects, over=batches * count):  # noqa: B007
            pass
        values.block_until_ready()

    return {FLOOR: deep()[FLOOR], PARTAX: by_partax, STEPS: by_steps}


ROWS: tuple[tuple[str, float, Measure], ...] = (
    ("Adam step, 64 layers, 32 in a call", 0.6, partial(measured, deep)),
    ("Adam step on the digits, 32 in a call", 0.6, partial(measured, digits)),
    ("Adam step in place in Flax nnx, 64 layers, 32 in a call", 0.6, partial(measured, in_place)),
)


if __name__ == "__main__":
    sys.exit(run(ROWS, FORMS, FORMS, "Measure train steps that run together in one call."))
