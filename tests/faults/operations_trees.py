"""Operations on every leaf of trees."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import jax
import jax.numpy as jnp
from case import Case, operation
from checks import alike, all_same, equals, says

import trees
from partax import _core, tree


def one_tree() -> Any:
    """Several families."""
    return {
        "layers": trees.make_model(2).layers,
        "bag": trees.Bag(trees.array(1), trees.Tray("x", trees.array(1))),
        "row": (trees.array(2), *range(20)),
        "pair": trees.Pair(None, trees.Cell(trees.array(1), mode=(1, "x"))),
    }


@operation("tree.leaves")
def _() -> Case:
    one = one_tree()
    expected = jax.tree.leaves(one)
    return Case(lambda: tree.leaves(one), lambda value: all_same(value, expected), watched=(one, *expected))


@operation("tree.flatten and unflatten")
def _() -> Case:
    one = one_tree()

    def run() -> Any:
        leaves, structure = tree.flatten(one)
        return tree.unflatten(structure, leaves)

    return Case(run, lambda value: alike(value, one), watched=(one, *jax.tree.leaves(one)))


@operation("tree.unflatten: a leaf too few")
def _() -> Case:
    structure = tree.structure(one_tree())
    return Case(lambda: tree.unflatten(structure, [1]), says("found 1"), raises=ValueError, watched=(structure,))


@operation("tree.structure: hash, equality, text")
def _() -> Case:
    one, other = tree.structure(one_tree()), [1]

    def run() -> Any:
        structure = tree.structure(one_tree())
        return structure == one, hash(structure) == hash(one), structure == tree.structure(other), repr(structure)

    return Case(run, equals((True, True, False, repr(one))), state=lambda: hash(one), watched=(one,))


@operation("tree.structure: pickle")
def _() -> Case:
    structure = tree.structure({"a": [1, (2, None)]})
    return Case(lambda: pickle.loads(pickle.dumps(structure)), equals(structure), watched=(structure,))


@operation("tree.map: three trees")
def _() -> Case:
    one, prefixed = one_tree(), jax.tree.map(lambda x: [x, None], one_tree())
    expected = jax.tree.map(lambda x, y, z: x, one, one, prefixed)
    return Case(
        lambda: tree.map(lambda x, y, z: x, one, one, prefixed),
        lambda value: alike(value, expected),
        watched=(one, prefixed, *jax.tree.leaves(one)),
    )


@operation("tree.map: is_leaf")
def _() -> Case:
    one = one_tree()
    run = lambda: tree.map(lambda x: x, one, is_leaf=lambda x: x is None or isinstance(x, trees.Tray))
    return Case(run, lambda value: alike(value, one), watched=(one,))


@operation("tree.map: trees that differ")
def _() -> Case:
    one, other = {"a": [trees.Bag(1), None]}, {"a": [trees.Bag(1), 2]}
    run = lambda: tree.map(lambda x, y: x, one, other)
    return Case(run, says("`rest[0]['a'][1]`"), raises=ValueError, watched=(one, other))


@operation("tree.map: a function that raises")
def _() -> Case:
    one = {"a": [1, trees.Tray(2, "x")]}

    def run() -> Any:
        sys._getframe()  # or CPython 3.11 loses the exception where it cannot make the frame of the caller
        return _core.tree_map(lambda x: x / 1, (one,), None, False)

    return Case(run, says("unsupported operand"), raises=TypeError, watched=(one,))


@operation("tree.map_with_path")
def _() -> Case:
    one = one_tree()
    expected = [path for path, _ in jax.tree_util.tree_leaves_with_path(one)]

    def run() -> Any:
        paths: list[Any] = []
        tree.map_with_path(lambda path, x: paths.append(path), one)
        return paths

    return Case(run, equals(expected), watched=(one,))


@operation("tree.at: a node and an array")
def _() -> Case:
    one = one_tree()
    new = object()
    expected = dict(one, layers=[one["layers"][0], new], bag=trees.Bag(5, one["bag"].items[1]))
    where = lambda t: (t["layers"][1], t["bag"].items[0])
    return Case(lambda: tree.at(where, one, (new, 5)), lambda value: alike(value, expected), watched=(one,))


@operation("tree.at: one of equal numbers")
def _() -> Case:
    one = [1, {"a": 1}, (), trees.Cell(1)]
    return Case(
        lambda: tree.at(lambda t: t[1]["a"], one, replace_fn=lambda x: x + 1),
        lambda value: alike(value, [1, {"a": 2}, (), trees.Cell(1)]),
        watched=(one,),
    )


@operation("tree.at: what is not there")
def _() -> Case:
    one = [1, trees.array(2)]
    return Case(lambda: tree.at(lambda t: [[t[0]]], one, [1]), says("does not specify"), raises=ValueError)


@operation("tree.equal")
def _() -> Case:
    one, same, other = one_tree(), one_tree(), [jnp.ones(2), 1.5]
    run = lambda: (tree.equal(one, same), tree.equal(one, other), tree.equal(other, [jnp.zeros(2), 1.5]))
    return Case(run, equals((True, False, False)), watched=(one, same, other))
