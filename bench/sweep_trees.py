"""Sweeps of what it costs to split a tree in two and to put it together, against its leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

import equinox as eqx
import inox
import jax
import jax.numpy as jnp
import optree

import partax
from interleave import Effort, Loop, Timing, take_turns
from points import Point, Sweep, few_rounds, seconds, sizes
from workloads import EQUINOX, PARTAX

INOX = "inox"
JAX_TREE = "jax.tree"
OPTREE = "optree"
SPLIT, COMBINE = "partition", "combine"
LONG = 100_000
"""With so many leaves the slowest take a second and more: one call a round is enough."""


def half_arrays(leaves: int) -> list[Any]:
    """Arrays and numbers in turns; all arrays are one, or making them would take longer than what is measured."""
    array = jnp.ones(())
    return [array if i % 2 == 0 else i for i in range(leaves)]


def calling(call: Callable[[], Any]) -> Loop:
    """Each time the result is dropped before the next call."""

    def loop(count: int) -> None:
        for _ in repeat(None, count):
            call()

    return loop


def once(call: Callable[[], Any]) -> Callable[[], float]:
    def measure() -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    return measure


def timings(effort: Effort, calls: Mapping[str, Callable[[], Any]], leaves: int) -> dict[str, Timing]:
    if leaves < LONG:
        return few_rounds(effort, {form: calling(call) for form, call in calls.items()})
    for call in calls.values():
        call()
    return take_turns({form: once(call) for form, call in calls.items()}, effort.slow_rounds(7))


def none_is_missing(one: Any, other: Any) -> Any:
    return other if one is None else one


def is_none(leaf: Any) -> bool:
    return leaf is None


def splits(tree: Any) -> dict[str, Callable[[], Any]]:
    """With jax.tree, what its users write."""

    def by_jax() -> Any:
        arrays = jax.tree.map(lambda leaf: leaf if eqx.is_array(leaf) else None, tree)
        return arrays, jax.tree.map(lambda leaf: None if eqx.is_array(leaf) else leaf, tree)

    return {
        PARTAX: lambda: partax.partition(tree, partax.is_array),
        EQUINOX: lambda: eqx.partition(tree, eqx.is_array),
        INOX: lambda: inox.tree.partition(tree, jax.Array),
        JAX_TREE: by_jax,
        OPTREE: lambda: optree.tree_partition(eqx.is_array, tree),
    }


def combinations(tree: Any) -> dict[str, Callable[[], Any]]:
    """Of the two parts that each library makes; optree and jax.tree have no function for it but `map`."""
    parts = {form: split() for form, split in splits(tree).items()}
    return {
        PARTAX: lambda: partax.combine(*parts[PARTAX]),
        EQUINOX: lambda: eqx.combine(*parts[EQUINOX]),
        INOX: lambda: inox.tree.combine(*parts[INOX]),
        JAX_TREE: lambda: jax.tree.map(none_is_missing, *parts[JAX_TREE], is_leaf=is_none),
        OPTREE: lambda: optree.tree_map(none_is_missing, *parts[OPTREE], none_is_leaf=True),
    }


def against_leaves(effort: Effort, leaves: int) -> Sequence[Point]:
    tree = half_arrays(leaves)
    found: list[Point] = []
    for panel, calls in ((SPLIT, splits(tree)), (COMBINE, combinations(tree))):
        found += seconds(panel, leaves, timings(effort, calls, leaves))
    return found


LEAVES = Sweep(
    "leaves",
    "leaves",
    sizes(2, 3, 4, 5, 6),
    sizes(2, 3, 4, 5),
    against_leaves,
    ("equinox", "inox", "optree"),
)
