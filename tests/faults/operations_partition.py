"""Operations on splitting and joining trees."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import equinox as eqx
import jax
import numpy as np
from case import Case, operation, operations
from checks import as_before, refused, unfailing

import partax
import trees
from partax import _core


def model() -> Any:
    """A tree with long paths, several families and a static run."""
    return {
        "layers": trees.make_model(2).layers,
        "state": trees.SAMPLES["adam"](),
        "bag": trees.Bag(trees.array(1), trees.Tray("x", trees.array(1))),
        "schlüssel": (trees.array(2), *range(20)),
        "pair": trees.Pair(None, trees.Cell(trees.array(1), mode=(1, "x"))),
    }


def parts_case(*filters: Any, tree: Any = None, **options: Any) -> Case:
    tree = model() if tree is None else tree
    return unfailing(lambda: partax.partition(tree, *filters, **options), tree, *jax.tree.leaves(tree))


PREFIX = {"layers": [partax.is_array, False], "state": True, "bag": int, "schlüssel": str, "pair": True}
operations(
    "partition",
    {
        "by a Python function and types": lambda: parts_case(
            lambda x: isinstance(x, int), (jax.Array, str), partax.not_(np.ndarray)
        ),
        "by abstract classes, what has __jax_array__, and Equinox's predicates": lambda: parts_case(
            *((eqx.nn.Linear, int | bytes), eqx.is_inexact_array, partax.is_array_like, eqx.is_array_like),
            tree=(model(), trees.Layer, len, lambda: 0, *(f"{i}" for i in range(3))),
        ),
        "by paths": lambda: parts_case(
            partax.any_of(partax.by_path("layers/*/weight"), partax.by_path("**/{mu,nu}/**")),
            partax.all_of(partax.by_path(regex="ü"), partax.is_array),
        ),
        "by a prefix of filters": lambda: parts_case(PREFIX),
        "is_leaf": lambda: parts_case(partax.is_array, is_leaf=lambda x: isinstance(x, trees.Tray)),
    },
)


@operation("combine: node by node")
def _() -> Case:
    tree = {"a": [trees.array(1), None], "b": None, "c": trees.Cell(1, mode=(1, "x"))}
    other = {"a": None, "b": trees.Pair(1, trees.Bag(2)), "c": trees.Cell(None, 2, mode=(True, "x"))}
    return unfailing(lambda: partax.combine(tree, other), tree, other)


def unlike(one: Any, other: Any, told: str) -> Case:
    return refused(lambda: partax.combine(one, other), told, ValueError, one, other)


def of_mode(mode: str) -> Any:
    return {"a": [trees.Bag(1, trees.Cell(1, mode=mode))]}


MODES = "`pytrees[1]['a'][0][<flat index 1>].mode`: found 'other', expected 'one'"
operations(
    "refused",
    {
        "trees that differ": lambda: unlike({"a": [trees.array(1), 2]}, {"a": [None]}, "pytrees[1]['a']"),
        "static parts that differ": lambda: unlike(of_mode("one"), of_mode("other"), MODES),
    },
)


@operation("partition: a filter that fits nowhere")
def _() -> Case:
    tree = model()
    return refused(lambda: partax.partition(tree, {"layers": [True]}), "pytree", ValueError, tree)


@operation("broadcast_prefix")
def _() -> Case:
    tree, prefix = {"a": [1, 2], "b": trees.Bag(3, 4)}, {"a": "A", "b": trees.Bag(None, "B")}
    return unfailing(lambda: _core.broadcast_prefix(prefix, tree, lambda x: x is None, "prefix", "tree"), tree, prefix)


@operation("flat_partition")
def _() -> Case:
    tree = model()
    return unfailing(lambda: partax.flat_partition(tree, partax.is_array), tree, *jax.tree.leaves(tree))


@operation("flat_partition: paths of jax, and repeated ones")
def _() -> Case:
    tree = {"a/b": 1, "a": {"b": 2}, "list": trees.Tray(trees.array(1), [1])}
    return unfailing(lambda: [partax.flat_partition(tree, True, separator=s)[1] for s in ("/", None)], tree)


@operation("flat_combine")
def _() -> Case:
    spec, arrays, rest = partax.flat_partition(model(), partax.is_array)
    run = lambda: partax.flat_combine(spec, arrays, rest)
    return unfailing(run, spec, arrays, rest, *arrays.values(), state=lambda: (spec.paths, spec.separator))


@operation("flat_combine: a key too few")
def _() -> Case:
    spec, leaves, _ = partax.flat_partition({"a": [1, 2]}, True, separator="/")
    less = {key: leaf for key, leaf in leaves.items() if key != "a/1"}
    return refused(lambda: partax.flat_combine(spec, less), "a/1", KeyError, spec, less)


def fresh_spec() -> Any:
    return partax.flat_partition(model(), partax.is_array)[0]


@operation("FlatSpec: hash and equality")
def _() -> Case:
    specs = [fresh_spec(), fresh_spec(), partax.flat_partition([1], True)[0]]

    def prepare() -> None:
        specs[:2] = [fresh_spec(), fresh_spec()]  # which remember their hash and what they compare

    run = lambda: (hash(specs[0]) == hash(specs[1]), specs[0] == specs[1], specs[0] != specs[2])
    state = lambda: (specs[0].paths, repr(specs[0]))
    return Case(run, as_before((True, True, True)), prepare=prepare, state=state)


@operation("FlatSpec: text, paths, copy")
def _() -> Case:
    spec = fresh_spec()
    return unfailing(lambda: (repr(spec), spec.paths, copy.deepcopy(spec)), spec, state=lambda: hash(spec))


@operation("FlatSpec: pickle")
def _() -> Case:
    spec = partax.flat_partition({"a": [1, (2, None)], "b": {"c": 3}}, True)[0]
    return unfailing(lambda: pickle.loads(pickle.dumps(spec)), spec, state=lambda: hash(spec))


@operation("Static: made, hash, equality, text")
def _() -> Case:
    value = ([1, {"a": (2, "x")}], bytearray(b"y"))

    def run() -> Any:
        one, other = partax.Static(value), partax.Static(([1, {"a": (2, "x")}], bytearray(b"y")))
        return hash(one) == hash(other), one == other, repr(one), one.value

    return unfailing(run, value)


@operation("Static: an array")
def _() -> Case:
    return refused(lambda: partax.Static([1, trees.array(2)]), "value", TypeError)
