"""Operations on every leaf of trees."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
from case import Case, operation, operations
from checks import alike, equals, says

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


def like_jax(run: Callable[[Any], Any], expected: Callable[[Any], Any] = lambda one: one) -> Case:
    """What gives a tree, or a list, of the same leaves as jax does."""
    one = one_tree()
    wanted = expected(one)
    return Case(lambda: run(one), lambda value: alike(value, wanted), watched=(one, *jax.tree.leaves(one)))


def refused(run: Callable[[], Any], told: str, kind: type[Exception] = ValueError, *watched: Any) -> Case:
    return Case(run, says(told), raises=kind, watched=watched)


def pairs(x: Any) -> Any:
    return jax.tree.map(lambda leaf: [leaf, None], x)


NEW = object()
ONE_NUMBER: Any = [1, {"a": 1}, (), trees.Cell(1)]
SHORT: Any = {"a": [trees.Bag(1), None]}
operations(
    "tree",
    {
        "leaves": lambda: like_jax(tree.leaves, jax.tree.leaves),
        "flatten and unflatten": lambda: like_jax(lambda one: tree.unflatten(*tree.flatten(one)[::-1])),
        "map, three trees": lambda: like_jax(lambda one: tree.map(lambda x, y, z: x, one, one, pairs(one))),
        "at, a node and an array": lambda: like_jax(
            lambda one: tree.at(lambda t: (t["layers"][1], t["bag"].items[0]), one, (NEW, 5)),
            lambda one: dict(one, layers=[one["layers"][0], NEW], bag=trees.Bag(5, one["bag"].items[1])),
        ),
        "at, one of equal numbers": lambda: Case(
            lambda: tree.at(lambda t: t[1]["a"], ONE_NUMBER, replace_fn=lambda x: x + 1),
            lambda value: alike(value, [1, {"a": 2}, (), trees.Cell(1)]),
            watched=(ONE_NUMBER,),
        ),
        "unflatten, a leaf too few": lambda: refused(
            lambda: tree.unflatten(tree.structure(SHORT["a"]), []), "found 0", ValueError, SHORT
        ),
        "map, trees that differ": lambda: refused(
            lambda: tree.map(lambda x, y: x, SHORT, {"a": [trees.Bag(1), 2]}), "`rest[0]['a'][1]`", ValueError, SHORT
        ),
    },
)


@operation("tree.structure: hash, equality, text")
def _() -> Case:
    one, other = tree.structure(one_tree()), [1]

    def run() -> Any:
        structure = tree.structure(one_tree())
        return structure == one, hash(structure) == hash(one), structure == tree.structure(other), repr(structure)

    return Case(run, equals((True, True, False, repr(one))), state=lambda: hash(one), watched=(one,))


@operation("tree.map: a function that raises")
def _() -> Case:
    one = {"a": [1, trees.Tray(2, "x")]}

    def run() -> Any:
        sys._getframe()  # or CPython 3.11 loses the exception where it cannot make the frame of the caller
        return _core.tree_map(lambda x: x / 1, (one,), None, False)

    return refused(run, "unsupported operand", TypeError, one)


@operation("tree.map_with_path")
def _() -> Case:
    one = one_tree()
    expected = [path for path, _ in jax.tree_util.tree_leaves_with_path(one)]

    def run() -> Any:
        paths: list[Any] = []
        tree.map_with_path(lambda path, x: paths.append(path), one)
        return paths

    return Case(run, equals(expected), watched=(one,))
