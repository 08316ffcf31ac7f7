"""Operations on the stages of one call, each alone."""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from case import Case, operation, operations
from checks import refused, unfailing

import flax_trees
import partax
import trees
from partax import _core
from partax._pytree.key_details import details


def everything() -> Any:
    """Every family, with static values of many kinds, a dict key that takes long to write, and a long run."""
    return {
        "mixed": trees.SAMPLES["mixed"](),
        "statics": trees.SAMPLES["statics"](),
        "wrapped": trees.SAMPLES["module_wrapper"](),
        "partial": trees.SAMPLES["jax_partial_keywords"](),
        "absent": trees.absent_layer(),
        "default": trees.SAMPLES["defaultdict"](),
        "flax": flax_trees.samples(),
        "ключ": [trees.array(1), *range(300)],
    }


def describe(spec: Any) -> Any:
    return spec.num_dynamic, hash(spec), spec.dynamic_paths()


def new_class() -> Any:
    """An object of a class that is met for the first time."""
    cls: Any = type("New", (), {})

    def unflatten(label: Any, children: Any) -> Any:
        made = cls()
        made.label, made.weight = label, *children
        return made

    jax.tree_util.register_pytree_node(cls, lambda it: ((it.weight,), it.label), unflatten)
    partax.register_fields(cls, data=("weight",), static=("label",))
    return unflatten("new", (trees.array(2),))


@operation("flatten: a declared class that is new")
def _() -> Case:
    new: list[Any] = [None]

    def check(value: Any) -> None:
        again = value[1].rebuild(value[0])
        assert type(again) is type(new[0]) and vars(again) == vars(new[0])

    return Case(lambda: _core.flatten(new[0]), check, prepare=lambda: new.__setitem__(0, new_class()), keeps=True)


@operation("flatten: what cannot be static")
def _() -> Case:
    tree = {"a": [trees.Bag(trees.array(1), label=trees.array(2))]}
    return refused(lambda: _core.flatten(tree, "model"), "model['a'][0]", TypeError, tree)


class Failing:
    """A node whose flatten function raises."""


def _fail(_: Any) -> Any:
    raise LookupError("flatten failed")


jax.tree_util.register_pytree_node(Failing, _fail, lambda _, children: Failing())


@operation("flatten: a flatten function that raises")
def _() -> Case:
    tree = trees.Tray(1, [Failing()])

    def run() -> Any:
        sys._getframe()  # without memory for it later, CPython drops what a function has raised that was called here
        return _core.flatten(tree, "model")

    return refused(run, "flatten failed", LookupError)


def of_spec(run: Callable[[Any, Any, Any], Any], other: dict[str, Any] | None = None) -> Case:
    """An operation on a spec, its leaves, and a tree that it may be of."""
    leaves, spec = _core.flatten(everything())
    tree = everything() | (other or {})
    return unfailing(lambda: run(spec, leaves, tree), tree, *leaves, state=lambda: describe(spec))


operations(
    "spec",
    {
        "flatten": lambda: of_spec(lambda spec, leaves, tree: _core.flatten(tree)),
        "match": lambda: of_spec(lambda spec, leaves, tree: spec.match(tree)),
        "match, differs": lambda: of_spec(
            lambda spec, leaves, tree: spec.match(tree), {"ключ": [trees.array(1), *range(299), -1]}
        ),
        "rebuild": lambda: of_spec(lambda spec, leaves, tree: spec.rebuild(leaves)),
        "paths": lambda: of_spec(lambda spec, leaves, tree: spec.dynamic_paths()),
        "describe_tree": lambda: of_spec(
            lambda spec, leaves, tree: [detail[:2] for detail in details(_core.describe_tree(tree, "model")[0])]
        ),
    },
)


def adder(n: Any) -> Callable[[Any], Any]:
    def inner(x: Any) -> Any:
        return x + n

    return inner


STATICS: dict[str, Callable[[], Any]] = {
    "numbers": lambda: (1, 2.5, complex(1, -0.0), np.float32(3), 10**40),
    "texts": lambda: ("one", b"two", "drei€"),
    "containers": lambda: [{"a": [1, {2, 3}]}, bytearray(b"x"), frozenset([1, "b"])],
    "dataclass": lambda: trees.Config([1, 2], trees.Config()),
    "named tuple": lambda: trees.Pair([1], ("x",)),
    "function": lambda: adder([1, (2, "x")]),
    "functions in functions": lambda: adder((adder(1), functools.partial(adder(2), y=[3]))),
    "method": lambda: ([].append, trees.make_model().layers[0].total.__func__),
    "jitted": lambda: jax.jit(adder(3)),
    "treedef": lambda: jax.tree.structure({"a": [1, 2], "b": trees.Tray(1, 2)}),
    "identity": lambda: (object, len),
    "ordered": lambda: (OrderedDict(a=1, b=[2]), defaultdict(list, a=1)),
}


@operation("static_equal and static_hash: all kinds")
def _() -> Case:
    pairs = [(make(), make()) for make in STATICS.values()]
    return unfailing(lambda: [(_core.static_equal(*pair), _core.static_hash(pair[0])) for pair in pairs], *pairs)


@operation("static_hash: an array")
def _() -> Case:
    return refused(lambda: _core.static_hash((1, [trees.array(2)])), "found an array", TypeError)


class Converts:
    def __jax_array__(self) -> Any:
        return trees.array(1)


@operation("predicates")
def _() -> Case:
    things = [1, 1.5, True, "s", trees.array(1), np.ones(2), np.int64(1), Converts(), object(), None]
    tests = [_core.is_array, _core.is_array_like, _core.is_inexact_array, _core.is_inexact_array_like]
    return unfailing(lambda: [[test(x) for x in things] for test in tests], things[4])
