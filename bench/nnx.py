"""What a call costs in Flax nnx's own style, where a function updates its arguments in place.

    python bench/nnx.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

The floor is `jax.jit` on the same arrays in flat tuples, of which those that change come back. Beside it: `jax.jit`
with nnx.split and nnx.merge by hand, and what Flax has, each in a mode that it names: `nnx.jit` (graph, tree),
`nnx.cached_partial` (graph) and `nnx.jit_partial` (tree), both with the objects bound beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx

    from budgets import OF_VARIABLES, Known, Measure, Row, as_row, run
    from interleave import Effort, Loop, repeated
    from partax import nnx as partax_nnx
    from workloads import FLOOR, PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

BY_HAND = "split, merge"
NNX_JIT = "nnx.jit"
TREE_MODE = "tree mode"
CACHED_PARTIAL = "cached_partial"
JIT_PARTIAL = "jit_partial"
FORMS = (FLOOR, BY_HAND, NNX_JIT, TREE_MODE, CACHED_PARTIAL, JIT_PARTIAL, PARTAX)
Objects = tuple[Any, ...]


@dataclass(frozen=True)
class Work:
    """A function of nnx objects and an array, which updates the objects in place and returns an array."""

    fn: Callable[..., jax.Array]
    objects: Callable[[], Objects]
    """New ones for each form, equal to one another."""
    changed: Any
    """The nnx filter of the Variables that `fn` changes."""
    x: jax.Array


class Mlp(nnx.Module):
    """As deep and wide as those of bench/dispatch.py."""

    def __init__(self, depth: int, width: int) -> None:
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(depth + 1)])

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        return self.layers[-1](x)


def model_and_optimizer(depth: int) -> Objects:
    model = Mlp(depth, width=16)
    return model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)


def nothing(model: Mlp, optimizer: nnx.Optimizer[Mlp], x: jax.Array) -> jax.Array:
    return x + 1


def train_step(model: Mlp, optimizer: nnx.Optimizer[Mlp], x: jax.Array) -> jax.Array:
    loss, grads = nnx.value_and_grad(lambda model: jnp.mean(model(x) ** 2))(model)
    optimizer.update(model, grads)
    return loss


class Block(nnx.Module):
    """One layer of a decoder: what it remembers, and its parameters."""

    def __init__(self, parameters: int) -> None:
        self.cache = nnx.Cache(jnp.zeros(16))
        self.parameters = nnx.List([nnx.Param(jnp.ones(16)) for _ in range(parameters)])


def decoder() -> Objects:
    """4,000 Variables in 64 blocks."""
    return (nnx.List([Block(61 + i % 2) for i in range(64)]),)


def decode(blocks: nnx.List[Block], x: jax.Array) -> jax.Array:
    for block in blocks:
        block.cache[...] += x
    return blocks[-1].cache[...] + 1


def flat_loop(work: Work) -> Loop:
    """The floor: the arrays that change in one tuple, the others in another."""
    graphdef, changing, constant = nnx.split(work.objects(), work.changed, ...)
    carried, carried_def = jax.tree.flatten(changing)
    constants, constants_def = jax.tree.flatten(constant)

    @jax.jit
    def fn(carried: tuple[jax.Array, ...], constants: tuple[jax.Array, ...], x: jax.Array) -> Any:
        states = jax.tree.unflatten(carried_def, carried), jax.tree.unflatten(constants_def, constants)
        objects = nnx.merge(graphdef, *states)
        out = work.fn(*objects, x)
        return tuple(jax.tree.leaves(nnx.state(objects, work.changed))), out

    return functional_loop(fn, tuple(carried), tuple(constants), work.x)


def by_hand_loop(work: Work) -> Loop:
    """What Flax's guide on performance has users write."""
    graphdef, changing, constant = nnx.split(work.objects(), work.changed, ...)

    @jax.jit
    def fn(changing: nnx.State, constant: nnx.State, x: jax.Array) -> Any:
        objects = nnx.merge(graphdef, changing, constant)
        out = work.fn(*objects, x)
        return nnx.state(objects, work.changed), out

    return functional_loop(fn, changing, constant, work.x)


def functional_loop(fn: Callable[..., Any], carried: Any, constant: Any, x: jax.Array) -> Loop:
    def loop(count: int) -> None:
        carry, out = carried, x
        for _ in repeat(None, count):
            carry, out = fn(carry, constant, x)
        out.block_until_ready()

    return loop


def same_value(out: jax.Array) -> jax.Array:
    return out


def loops_of(work: Work) -> dict[str, Loop]:
    fn = work.fn

    def on_objects(jitted: Callable[..., Any]) -> Loop:
        return repeated(jitted, *work.objects(), work.x, wait_for=same_value)

    def on_bound(bind: Callable[..., Callable[..., Any]], *options: Any, **named: Any) -> Loop:
        return repeated(bind(*options, *work.objects(), **named), work.x, wait_for=same_value)

    ours = partax_nnx.jit(fn, graph=True)
    ours.clear_cache()  # of a row before: those traces are of other objects, with equal static values
    return {
        FLOOR: flat_loop(work),
        BY_HAND: by_hand_loop(work),
        NNX_JIT: on_objects(nnx.jit(fn, graph=True)),
        TREE_MODE: on_objects(nnx.jit(fn, graph=False)),
        CACHED_PARTIAL: on_bound(nnx.cached_partial, nnx.jit(fn, graph=True)),
        JIT_PARTIAL: on_bound(nnx.jit_partial, fn, graph=False),
        PARTAX: on_objects(ours),
    }


def measure(work: Callable[[], Work], base: str, effort: Effort, name: str, budget: float) -> Row:
    return as_row(name, effort.timings(loops_of(work())), budget, f"x {base}")


def idle(depth: int) -> Work:
    return Work(nothing, partial(model_and_optimizer, depth), nnx.Nothing(), jnp.ones(()))


def training(depth: int) -> Work:
    return Work(train_step, partial(model_and_optimizer, depth), nnx.Everything(), jnp.ones((8, 16)))


def decoding() -> Work:
    return Work(decode, decoder, nnx.Cache, jnp.ones(16))


ROWS: tuple[tuple[str, float, Measure], ...] = (
    ("a call that does nothing, 8 layers", 1.3, partial(measure, partial(idle, 8), FLOOR)),
    ("a call that does nothing, 64 layers", 1.3, partial(measure, partial(idle, 64), FLOOR)),
    ("Adam step in place, 8 layers", 1.15, partial(measure, partial(training, 8), FLOOR)),
    ("Adam step in place, 64 layers", 1.15, partial(measure, partial(training, 64), FLOOR)),
    ("4,000 Variables in, 64 changed out", 1.3, partial(measure, decoding, FLOOR)),
    ("the same, over nnx.jit", 0.05, partial(measure, decoding, NNX_JIT)),
)
KNOWN = {name: Known(1.5, OF_VARIABLES) for name, *_ in ROWS if name.startswith("a call that does nothing")}


if __name__ == "__main__":
    description = "Measure calls that update Flax nnx objects in place."
    sys.exit(run(ROWS, FORMS, FORMS, description, KNOWN, libraries=("flax", "optax")))
