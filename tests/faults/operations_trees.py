"""Operations on trees: the stages of a call, each by itself, and functions that split, join and change trees."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from case import Case, equals, operation, raising, returning

import library_trees
import partax
import trees
from partax import _core, by_path, tree
from partax._pytree.spec_data import details


def every_family() -> Any:
    """With static values of many kinds, keys that are not ASCII, and a long run of static leaves."""
    names = ("mixed", "statics", "module_wrapper", "jax_partial_keywords", "defaultdict", "module_absent")
    samples = {name: trees.SAMPLES[name]() for name in names}
    return samples | {"libraries": library_trees.samples(), "ключ": [trees.array(1), *range(300)]}


def model() -> Any:
    return {
        "layers": trees.make_model(2).layers,
        "state": trees.SAMPLES["adam"](),
        "bag": trees.Bag(trees.array(1), trees.Tray("x", trees.array(1))),
        "schlüssel": (trees.array(2), *range(20)),
        "pair": trees.Pair(None, trees.Cell(trees.array(1), mode=(1, "x"))),
    }


@operation
def flatten_and_match() -> Case:
    argument, other = every_family(), every_family() | {"ключ": [trees.array(1), *range(299), -1]}
    call = _core.prepare_call(partax.filter_jit(len), (argument,), {}, False)
    match = lambda tree: getattr(call.rebind((tree,), {}), "leaves", None)
    return returning(lambda: (_core.tree_flatten(argument, None), match(argument), match(other)), argument)


@operation
def rebuild_and_describe() -> Case:
    argument = every_family()
    leaves, spec = _core.tree_flatten(every_family(), None)
    describe = lambda: [entry[:2] for entry in details(_core.describe_tree(argument, "model")[0])]
    state = lambda: (hash(spec), hash(spec == spec))
    return returning(lambda: (_core.tree_unflatten(spec, leaves), describe()), argument, *leaves, state=state)


@operation
def flatten_a_new_declared_class() -> Case:
    current: list[Any] = []

    def create() -> None:
        cls: Any = type("New", (), {})

        def unflatten(label: Any, children: Any) -> Any:
            value = cls()
            value.label, value.weight = label, *children
            return value

        jax.tree_util.register_pytree_node(cls, lambda value: ((value.weight,), value.label), unflatten)
        partax.register_fields(cls, data_fields=("weight",), meta_fields=("label",))
        current[:] = [unflatten("new", (trees.array(2),))]

    def check(value: Any) -> None:
        rebuilt = _core.tree_unflatten(value[1], value[0])
        assert type(rebuilt) is type(current[0]) and vars(rebuilt) == vars(current[0])

    return Case(lambda: _core.tree_flatten(current[0], None), check, prepare=create, keeps_memory=True)


def adder(n: Any) -> Callable[[Any], Any]:
    return lambda x: x + n


def statics() -> list[Any]:
    """Without subclasses of dict: CPython 3.11 crashes if memory ends in `PyMapping_Items`."""
    return [
        (1, 2.5, complex(1, -0.0), np.float32(3), 10**40, "one", b"two", "drei€"),
        [{"a": [1, {2, 3}]}, bytearray(b"x"), frozenset([1, "b"])],
        (trees.Config([1, 2], trees.Config()), trees.Pair([1], ("x",))),
        adder((adder([1, (2, "x")]), functools.partial(adder(2), y=[3]))),
        ([].append, trees.make_model().layers[0].total.__func__, jax.jit(adder(3)), object, len),
        jax.tree.structure({"a": [1, 2], "b": trees.Tray(1, 2)}),
    ]


@operation
def equality_and_hash_of_static_values() -> Case:
    pairs = list(zip(statics(), statics(), strict=True))
    run = lambda: [(_core.static_equal(*pair), hash(tree.Static(pair[0]))) for pair in pairs]
    return returning(run, *(value for value, _ in pairs))


@operation
def predicates() -> Case:
    class Converts:
        def __jax_array__(self) -> Any:
            return trees.array(1)

    things = [1, 1.5, True, "s", trees.array(1), np.ones(2), np.int64(1), Converts(), object(), None]
    tests = [_core.is_array, _core.is_array_like, _core.is_inexact_array, _core.is_inexact_array_like]
    return returning(lambda: [[test(x) for x in things] for test in tests], things[4])


FILTERS: list[tuple[Any, ...]] = [
    (lambda x: isinstance(x, int), (jax.Array, str), ~(partax.is_array & np.ndarray)),
    ((eqx.nn.Linear, int | bytes), eqx.is_inexact_array, partax.is_array_like, eqx.is_array_like),
    (by_path("layers/*/weight") | by_path("**/{mu,nu}/**"), by_path(regex="ü") & partax.is_array),
    ({"layers": [partax.is_array, False], "state": True, "bag": int, "schlüssel": str, "pair": True},),
]


@operation
def partition() -> Case:
    argument = model()
    run = lambda: [partax.partition(argument, *filters) for filters in FILTERS]
    return returning(run, argument, *jax.tree.leaves(argument))


@operation
def combine_and_broadcast() -> Case:
    first: Any = {"a": [trees.array(1), None], "b": None, "c": trees.Cell(1, mode=(1, "x"))}
    second: Any = {"a": None, "b": trees.Pair(1, trees.Bag(2)), "c": trees.Cell(None, 2, mode=(True, "x"))}
    prefix, full = {"a": "A", "b": trees.Bag(None, "B")}, {"a": [1, 2], "b": trees.Bag(3, 4)}
    broadcast = lambda: _core.broadcast_prefix(prefix, full, lambda x: x is None, "prefix", "tree")
    return returning(lambda: (partax.combine(first, second), broadcast()), first, second, prefix, full)


@operation
def flat_partition() -> Case:
    argument = model()
    run = lambda: partax.flat_partition(argument, partax.is_array)
    return returning(run, argument, *jax.tree.leaves(argument))


@operation
def flat_combine() -> Case:
    spec, arrays, rest = partax.flat_partition(model(), partax.is_array)
    run = lambda: partax.flat_combine(spec, arrays, rest)
    return returning(run, spec, arrays, rest, *arrays.values(), state=lambda: (spec.paths, spec.separator))


@operation
def hash_and_equality_of_flat_specs() -> Case:
    new_spec = lambda: partax.flat_partition(model(), partax.is_array)[0]
    specs, other = [new_spec(), new_spec()], partax.flat_partition([1], True)[0]

    def prepare() -> None:
        specs[:] = [new_spec(), new_spec()]  # a spec keeps its hash and what it compares

    run = lambda: (hash(specs[0]) == hash(specs[1]), specs[0] == specs[1], specs[0] != other)
    return Case(run, equals((True, True, True)), prepare=prepare, state=lambda: specs[0].paths)


@operation
def at_and_equal() -> Case:
    argument, new = model(), object()
    where = lambda t: (t["layers"][1], t["bag"].items[0])
    return returning(lambda: (tree.at(where, argument, (new, 5)), tree.equal(argument, argument)), argument, new)


@operation
def error_for_what_cannot_be_static() -> Case:
    value = {"a": [trees.Bag(label=trees.array(2))]}
    return raising(TypeError, "model['a'][0]", lambda: _core.describe_tree(value, "model"), value)


class Failing:
    """A node whose flatten function raises."""

    def flatten(self) -> Any:
        raise LookupError("flatten failed")


jax.tree_util.register_pytree_node(Failing, Failing.flatten, lambda _, children: Failing())


@operation
def error_of_a_flatten_function() -> Case:
    value = trees.Tray(1, [Failing()])
    # CPython 3.11 loses the exception if it cannot create the frame of the caller, so that is created first.
    return raising(LookupError, "flatten failed", lambda: (sys._getframe(), _core.describe_tree(value, "model")), value)
