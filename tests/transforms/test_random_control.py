"""Guards the promise that loops and branches of random trees, of all families, are Python's own on the same trees."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from hypothesis import given, settings
from hypothesis import strategies as st

import partax
from random_trees import EXAMPLES, build, recipes
from trees import add_one, assert_same, is_array

few = settings(max_examples=max(EXAMPLES // 10, 4), deadline=None)


def strong(tree: Any) -> Any:
    """Its arrays as jax has them, without weak types, which would settle."""
    arrays, rest = partax.partition(tree, is_array)
    return partax.combine(jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), arrays), rest)


@few
@given(recipes)
def test_a_carry_is_what_the_python_loop_makes_of_it(recipe: Any) -> None:
    tree = strong(build(recipe, 1))
    expected = add_one(add_one(tree))
    carried, seen = partax.filter_scan(lambda c, x: (add_one(c), c), tree, length=2)
    assert_same(carried, expected)
    assert_same(jax.tree.map(lambda x: x[1] if is_array(x) else x, seen), add_one(tree))
    assert_same(partax.filter_fori_loop(0, 2, lambda i, c: add_one(c), tree), expected)


@few
@given(recipes, st.booleans())
def test_a_branch_is_the_function_that_is_chosen(recipe: Any, pred: bool) -> None:
    tree = strong(build(recipe, 1))
    assert_same(
        partax.filter_cond(pred, add_one, lambda t: t, tree), add_one(tree) if pred else jax.tree.map(id_, tree)
    )


@few
@given(recipes, st.integers(1, 3))
def test_unstack_is_the_inverse_of_stack(recipe: Any, count: int) -> None:
    layers = [strong(build(recipe, 1))]
    for _ in range(count - 1):
        layers.append(add_one(layers[-1]))
    stacked = partax.stack(layers)
    if any(map(is_array, jax.tree.leaves(stacked))):
        for found, expected in zip(partax.unstack(stacked), layers, strict=True):
            assert_same(found, jax.tree.map(id_, expected))
    else:
        assert_same(stacked, jax.tree.map(id_, layers[0]))


def id_(x: Any) -> Any:
    return x
