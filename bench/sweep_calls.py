"""Sweeps of what a call costs: against arrays, against the nodes of each library, and against a growing computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import repeat
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import family_trees
import partax
import workloads as work
from family_trees import FAMILIES, Family
from interleave import Effort, Loop, repeated
from points import Point, Sweep, few_rounds, ratios, seconds, shares, sizes
from workloads import EQUINOX, FLOOR, JAX_JIT, PARTAX

CALL = "a call"
MANY = 3_000
"""From so many arrays on a call takes milliseconds."""


def some_arrays(count: int) -> list[jax.Array]:
    """Distinct ones, made at once: one by one they would take longer than what is measured."""
    return jax.device_put([np.full(4, i, np.float32) for i in range(count)])


def same_value(out: Any) -> Any:
    return out


def against_arrays(effort: Effort, count: int) -> Sequence[Point]:
    """Modules of two arrays and a static number in a list; of all these arrays the function reads one."""
    arrays = some_arrays(count)
    model = [work.Affine(*pair) for pair in zip(arrays[::2], arrays[1::2], strict=True)]
    forms = work.four_forms(lambda _: work.first_leaf, model)
    loops = {form: repeated(f.fn, *f.state, wait_for=same_value) for form, f in forms.items()}
    timings = few_rounds(effort, loops) if count >= MANY else effort.timings(loops)
    return seconds(CALL, count, timings) + ratios(CALL, count, timings, FLOOR)


ARRAYS = Sweep(
    "arrays",
    "arrays",
    (*sizes(1, 2, 3, 4, steps=(1, 3)), 10**5),
    sizes(1, 2, 3, 4),
    against_arrays,
)

ONE_OF_EACH_LIBRARY = (
    *("dict", "NamedTuple", "equinox.Module", "flax.struct.dataclass", "chex.dataclass", "penzai Struct"),
    *("nnx.Module", "own class, register_pytree_node"),
)


@cache
def trees_of(family: Family) -> family_trees.Trees | None:
    """None where the library is not installed."""
    try:
        return family.trees()
    except ImportError:
        return None


def against_nodes(effort: Effort, count: int) -> Sequence[Point]:
    """400 arrays, as many as `family_trees.pairs()` has: two in each of the nodes, the others in a list."""
    found: list[Point] = []
    pairs = family_trees.pairs()
    in_nodes, others = pairs[:count], [array for pair in pairs[count:] for array in pair]
    for family in FAMILIES:
        trees = trees_of(family) if family.name in ONE_OF_EACH_LIBRARY else None
        if trees is None:
            continue
        tree = (trees.build(in_nodes), others)
        flat = tuple(jax.tree.leaves(tree))
        loops = {
            FLOOR: repeated(jax.jit(reader()), flat, wait_for=same_value),
            JAX_JIT: repeated(jax.jit(reader()), tree, wait_for=same_value),
            EQUINOX: repeated(eqx.filter_jit(reader()), tree, wait_for=same_value),
            PARTAX: repeated(partax.filter_jit(reader()), tree, wait_for=same_value),
        }
        of_forms = ratios("", count, effort.timings(loops), FLOOR)
        found += [replace(point, panel=point.form, form=family.name) for point in of_forms]
    return found


def reader() -> Callable[[Any], jax.Array]:
    """A new function for each form: `jax.jit` of one function twice has one cache."""
    return lambda tree: work.first_leaf(tree)


NODES = Sweep(
    "nodes",
    "nodes",
    (1, 3, 10, 30, 100, family_trees.NODES),
    (1, 10, family_trees.NODES),
    against_nodes,
    ("equinox", "flax", "chex", "penzai"),
)

WAITED = "each step is waited for"
IN_A_ROW = "steps in a row, the last is waited for"


def product(model: Any, opt_state: Any, x: jax.Array) -> jax.Array:
    """A matrix product, whose size is that of the work, and an array of the state, so that it is an argument."""
    return jnp.tanh(x @ x + opt_state[0].count)


def waiting(fn: Callable[..., jax.Array], state: tuple[Any, ...], x: jax.Array) -> Loop:
    def loop(count: int) -> None:
        out = x
        for _ in repeat(None, count):
            out = fn(*state, out)
            out.block_until_ready()

    return loop


def in_a_row(fn: Callable[..., jax.Array], state: tuple[Any, ...], x: jax.Array) -> Loop:
    def loop(count: int) -> None:
        out = x
        for _ in repeat(None, count):
            out = fn(*state, out)
        out.block_until_ready()

    return loop


@cache
def steps() -> dict[str, work.Form]:
    """On an MLP of 64 layers and its Adam state: 392 arrays, of which one is read."""
    model = work.mlp(depth=64, width=16)
    return work.four_forms(lambda _: product, model, work.adam_state(optax.adam(1e-3), model))


def against_work(effort: Effort, width: int) -> Sequence[Point]:
    """The seconds of a step, and the share of them that `jax.jit` on a flat tuple does not take for the same step."""
    x = jnp.eye(width) / 2
    found: list[Point] = []
    for panel, run in ((WAITED, waiting), (IN_A_ROW, in_a_row)):
        loops = {form: run(f.fn, f.state, x) for form, f in steps().items()}
        timings = effort.timings(loops)
        found += seconds(panel, width, timings) + shares(panel, width, timings, FLOOR)
    return found


WORK = Sweep(
    "work",
    "width of the matrix",
    (16, 64, 128, 256, 512, 1024, 2048),
    (16, 128, 512, 1024),
    against_work,
    ("equinox", "optax"),
)
