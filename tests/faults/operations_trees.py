"""Operations on every leaf of trees."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
from case import Case, operation, operations
from checks import refused, unfailing

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


def on_one(run: Callable[[Any], Any]) -> Case:
    one = one_tree()
    return unfailing(lambda: run(one), one, *jax.tree.leaves(one))


def paths_of(one: Any) -> Any:
    paths: list[Any] = []
    tree.map_with_path(lambda path, x: paths.append(path), one)
    return paths


def structures(one: Any) -> Any:
    structure = tree.structure(one)
    return structure == tree.structure(one), hash(structure), structure == tree.structure([1]), repr(structure)


NEW = object()
PAIRS = jax.tree.map(lambda leaf: [leaf, None], one_tree())
SHORT: Any = {"a": [trees.Bag(1), None]}
operations(
    "tree",
    {
        "leaves": lambda: on_one(tree.leaves),
        "flatten and unflatten": lambda: on_one(lambda one: tree.unflatten(*tree.flatten(one)[::-1])),
        "map, three trees": lambda: on_one(lambda one: tree.map(lambda x, y, z: x, one, one, PAIRS)),
        "map_with_path": lambda: on_one(paths_of),
        "at, a node and an array": lambda: on_one(
            lambda one: tree.at(lambda t: (t["layers"][1], t["bag"].items[0]), one, (NEW, 5))
        ),
        "at, one of equal numbers": lambda: on_one(
            lambda one: tree.at(lambda t: t[1]["a"], [1, {"a": 1}, (), trees.Cell(1)], replace_fn=lambda x: x + 1)
        ),
        "structure, hash, equality, text": lambda: on_one(structures),
        "unflatten, a leaf too few": lambda: refused(
            lambda: tree.unflatten(tree.structure(SHORT["a"]), []), "found 0", ValueError, SHORT
        ),
        "map, trees that differ": lambda: refused(
            lambda: tree.map(lambda x, y: x, SHORT, {"a": [trees.Bag(1), 2]}), "`rest[0]['a'][1]`", ValueError, SHORT
        ),
    },
)


@operation("tree.map: a function that raises")
def _() -> Case:
    one = {"a": [1, trees.Tray(2, "x")]}

    def run() -> Any:
        sys._getframe()  # or CPython 3.11 loses the exception where it cannot make the frame of the caller
        return _core.tree_map(lambda x: x / 1, (one,), None, False)

    return refused(run, "unsupported operand", TypeError, one)
