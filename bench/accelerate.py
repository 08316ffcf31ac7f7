"""What calls into libraries on Equinox cost with `partax.equinox.accelerate()`, over the same calls without it.

    python bench/accelerate.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

A call of diffrax solves a small ordinary differential equation, one of optimistix finds a root; both are made in a
loop. Both take turns in one process; each turn begins with a call that compiles and is not timed. The row of haliax is
left out where it is not installed (marin-haliax, on Python 3.12 and newer).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import repeat
from typing import Any

try:
    import diffrax
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import optimistix

    from budgets import Measure, Row, as_row, run
    from interleave import Effort, take_turns
    from partax.equinox import accelerate
    from workloads import EQUINOX, PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

FORMS = (EQUINOX, PARTAX)
LIBRARIES = ("equinox", "diffrax", "optimistix", "lineax")
CALLS = 1000
Step = Callable[[jax.Array], Any]


def decay(t: Any, y: jax.Array, args: jax.Array) -> jax.Array:
    return -args * y


def solve_an_ode() -> Step:
    """Exponential decay over a unit of time, in eight steps of a fixed size."""
    term, solver = diffrax.ODETerm(decay), diffrax.Euler()
    rate = jnp.array([0.1, 0.2, 0.3])

    def step(y: jax.Array) -> Any:
        return diffrax.diffeqsolve(term, solver, 0.0, 1.0, 0.125, y, rate).ys

    return step


def shifted_cosine(y: jax.Array, args: jax.Array) -> jax.Array:
    return y - jnp.cos(y) * args


def find_a_root() -> Step:
    """Newton's method on three equations."""
    solver = optimistix.Newton(rtol=1e-4, atol=1e-4)
    scale = jnp.array([0.9, 1.0, 1.1])

    def step(y: jax.Array) -> Any:
        return optimistix.root_find(shifted_cosine, solver, y, scale).value

    return step


class Layer(eqx.Module):
    """Holds a compiled function of its own."""

    scale: jax.Array
    compiled: Any

    def __call__(self, y: jax.Array) -> jax.Array:
        return self.compiled(self.scale, y)


def scaled(scale: jax.Array, y: jax.Array) -> jax.Array:
    return scale * y


def a_kept_module() -> Step:
    """A call of a compiled function in a module that stays."""
    return Layer(jnp.array([0.9, 1.0, 1.1]), eqx.filter_jit(scaled))


def a_rebuilt_module() -> Step:
    """The same where each step makes the module again, as `apply_updates` and `tree_at` do."""
    layer: Any = a_kept_module()

    def step(y: jax.Array) -> Any:
        nonlocal layer
        layer = eqx.tree_at(lambda it: it.scale, layer, layer.scale)
        return layer(y)

    return step


def a_compiled_term() -> Step:
    """An ODETerm of a compiled function, which each solve has in a new module."""
    solver, rate = diffrax.Euler(), jnp.array([0.1, 0.2, 0.3])
    compiled = eqx.filter_jit(decay)

    def step(y: jax.Array) -> Any:
        return diffrax.diffeqsolve(diffrax.ODETerm(compiled), solver, 0.0, 1.0, 0.125, y, rate).ys

    return step


def a_bound_partial() -> Step:
    """A compiled function with its first argument bound, in each step again."""
    compiled, scale = eqx.filter_jit(scaled), jnp.array([0.9, 1.0, 1.1])
    return lambda y: eqx.Partial(compiled, scale)(y)


def a_named_train_step() -> Step:
    """A train step of Levanter's form: twelve stacked layers with named axes, Adam, and shardings by their names."""
    import haliax as hax

    width, middle = hax.make_axes(width=8, middle=16)
    rule, shardings = optax.adam(1e-3), {"width": "data"}
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    class Block(eqx.Module):
        norm: Any
        up: Any
        down: Any

        def __call__(self, x: Any) -> Any:
            return x + self.down(hax.nn.gelu(self.up(self.norm(x))))

    def block(key: jax.Array) -> Block:
        first, second = jax.random.split(key)
        linear = hax.nn.Linear.init
        return Block(hax.nn.LayerNorm.init(width), linear(width, middle, key=first), linear(middle, width, key=second))

    class Layers(eqx.Module):
        init = staticmethod(lambda *, key: block(key))

    def loss(model: Any, x: Any) -> jax.Array:
        return hax.mean(model.fold(x) ** 2).scalar()

    @partial(hax.named_jit, axis_resources=shardings, out_axis_resources=shardings)
    def train(model: Any, state: Any, y: jax.Array) -> Any:
        x = hax.named(jnp.outer(jnp.arange(1.0, 5.0), jnp.resize(y, 8)), ("batch", "width"))
        value, gradient = eqx.filter_value_and_grad(loss)(model, x)
        updates, state = rule.update(gradient, state, model)
        return value, eqx.apply_updates(model, updates), state

    keys = jax.random.split(jax.random.key(0), 12)
    with jax.set_mesh(mesh):
        model = hax.nn.Stacked.init(hax.Axis("layers", 12), Layers)(key=keys)
        state = rule.init(eqx.filter(model, eqx.is_array))

    def step(y: jax.Array) -> Any:
        with jax.set_mesh(mesh):
            return train(model, state, y)[0]

    return step


def compare(make: Callable[[], Step], effort: Effort, name: str, budget: float) -> Row:
    step = make()
    start = jnp.array([0.5, 0.6, 0.7])
    calls = CALLS // 10 if effort.quick else CALLS
    results: dict[str, Any] = {}

    def timed() -> float:
        found = step(start)
        begin = time.perf_counter()
        for _ in repeat(None, calls):
            found = step(start)
        found.block_until_ready()
        seconds = (time.perf_counter() - begin) / calls
        results["last"] = np.asarray(found)
        return seconds

    def accelerated() -> float:
        with accelerate():
            return timed()

    def kept(form: str, measure: Callable[[], float]) -> float:
        seconds = measure()
        results[form] = results.pop("last")
        return seconds

    measures = {EQUINOX: partial(kept, EQUINOX, timed), PARTAX: partial(kept, PARTAX, accelerated)}
    timings = take_turns(measures, effort.slow_rounds(11))
    if results[EQUINOX].tobytes() != results[PARTAX].tobytes():
        raise RuntimeError(f"{name}: {results[EQUINOX]} without, {results[PARTAX]} with partax")
    return as_row(name, timings, budget, f"x {EQUINOX}")


ROWS: tuple[tuple[str, float, Measure], ...] = (
    ("diffrax.diffeqsolve", 0.5, partial(compare, solve_an_ode)),
    ("optimistix.root_find", 0.5, partial(compare, find_a_root)),
    ("a function in a module that is kept", 0.5, partial(compare, a_kept_module)),
    ("a function in a module that is rebuilt", 0.5, partial(compare, a_rebuilt_module)),
    ("diffrax.diffeqsolve of ODETerm(eqx.filter_jit(f))", 0.5, partial(compare, a_compiled_term)),
    ("eqx.Partial of a function, bound in each step", 0.5, partial(compare, a_bound_partial)),
)
if find_spec("haliax"):
    ROWS += (("haliax.named_jit, a train step of 12 stacked layers", 0.5, partial(compare, a_named_train_step)),)


if __name__ == "__main__":
    sys.exit(run(ROWS, FORMS, FORMS, __doc__.split("\n")[0], libraries=LIBRARIES))
