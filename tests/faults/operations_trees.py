"""Operations on trees, each alone: the stages of a call, and what splits, joins and maps them."""

import functools
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from case import Case, as_before, operation, operations, refused, unfailing

import library_trees
import partax
import trees
from partax import _core, tree
from partax._pytree.spec_data import details


def everything() -> Any:
    """Every family, with static values of many kinds, keys that take long to write, long paths and long runs."""
    return {
        "mixed": trees.SAMPLES["mixed"](),
        "statics": trees.SAMPLES["statics"](),
        "wrapped": trees.SAMPLES["module_wrapper"](),
        "partial": trees.SAMPLES["jax_partial_keywords"](),
        "absent": trees.absent_layer(),
        "default": trees.SAMPLES["defaultdict"](),
        "libraries": library_trees.samples(),
        "ключ": [trees.array(1), *range(300)],
    }


def model() -> Any:
    """A smaller one, whose leaves may be anything."""
    return {
        "layers": trees.make_model(2).layers,
        "state": trees.SAMPLES["adam"](),
        "bag": trees.Bag(trees.array(1), trees.Tray("x", trees.array(1))),
        "schlüssel": (trees.array(2), *range(20)),
        "pair": trees.Pair(None, trees.Cell(trees.array(1), mode=(1, "x"))),
    }


def of_model(run: Callable[[Any], Any], made: Any = None) -> Case:
    given = model() if made is None else made
    return unfailing(lambda: run(given), given, *jax.tree.leaves(given))


# --- the stages of a call


def of_spec(run: Callable[[Any, Any, Any], Any], other: dict[str, Any] | None = None) -> Case:
    """An operation on a spec, its leaves, and a tree that it may be of."""
    leaves, spec = _core.flatten(everything())
    given = everything() | (other or {})
    state = lambda: (spec.num_dynamic, hash(spec), spec.dynamic_paths())
    return unfailing(lambda: run(spec, leaves, given), given, *leaves, state=state)


operations(
    "spec",
    {
        "flatten": lambda: of_spec(lambda spec, leaves, given: _core.flatten(given)),
        "match": lambda: of_spec(lambda spec, leaves, given: spec.match(given)),
        "match, differs": lambda: of_spec(
            lambda spec, leaves, given: spec.match(given), {"ключ": [trees.array(1), *range(299), -1]}
        ),
        "rebuild": lambda: of_spec(lambda spec, leaves, given: spec.rebuild(leaves)),
        "paths": lambda: of_spec(lambda spec, leaves, given: spec.dynamic_paths()),
        "describe_tree": lambda: of_spec(
            lambda spec, leaves, given: [it[:2] for it in details(_core.describe_tree(given, "model")[0])]
        ),
    },
)


def new_class() -> Any:
    """An object of a class that is met for the first time."""
    cls: Any = type("New", (), {})

    def unflatten(label: Any, children: Any) -> Any:
        made = cls()
        made.label, made.weight = label, *children
        return made

    jax.tree_util.register_pytree_node(cls, lambda it: ((it.weight,), it.label), unflatten)
    partax.register_fields(cls, data_fields=("weight",), meta_fields=("label",))
    return unflatten("new", (trees.array(2),))


@operation("flatten: a declared class that is new")
def _() -> Case:
    new: list[Any] = [None]

    def check(value: Any) -> None:
        again = value[1].rebuild(value[0])
        assert type(again) is type(new[0]) and vars(again) == vars(new[0])

    return Case(lambda: _core.flatten(new[0]), check, prepare=lambda: new.__setitem__(0, new_class()), keeps=True)


class Failing:
    """A node whose flatten function raises."""


def _fail(_: Any) -> Any:
    raise LookupError("flatten failed")


jax.tree_util.register_pytree_node(Failing, _fail, lambda _, children: Failing())


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


class Converts:
    def __jax_array__(self) -> Any:
        return trees.array(1)


@operation("predicates")
def _() -> Case:
    things = [1, 1.5, True, "s", trees.array(1), np.ones(2), np.int64(1), Converts(), object(), None]
    tests = [_core.is_array, _core.is_array_like, _core.is_inexact_array, _core.is_inexact_array_like]
    return unfailing(lambda: [[test(x) for x in things] for test in tests], things[4])


# --- parts


def parts_of(*filters: Any, made: Any = None, **options: Any) -> Case:
    return of_model(lambda given: partax.partition(given, *filters, **options), made)


PREFIX = {"layers": [partax.is_array, False], "state": True, "bag": int, "schlüssel": str, "pair": True}
operations(
    "partition",
    {
        "by a Python function and types": lambda: parts_of(
            lambda x: isinstance(x, int), (jax.Array, str), ~(partax.is_array & np.ndarray)
        ),
        "by abstract classes, what has __jax_array__, and Equinox's predicates": lambda: parts_of(
            *((eqx.nn.Linear, int | bytes), eqx.is_inexact_array, partax.is_array_like, eqx.is_array_like),
            made=(model(), trees.Layer, len, lambda: 0, *(f"{i}" for i in range(3))),
        ),
        "by paths": lambda: parts_of(
            partax.by_path("layers/*/weight") | partax.by_path("**/{mu,nu}/**"),
            partax.by_path(regex="ü") & partax.is_array,
        ),
        "by a prefix of filters": lambda: parts_of(PREFIX),
    },
)

ONE = {"a": [trees.array(1), None], "b": None, "c": trees.Cell(1, mode=(1, "x"))}
OTHER = {"a": None, "b": trees.Pair(1, trees.Bag(2)), "c": trees.Cell(None, 2, mode=(True, "x"))}
TAKEN: Any = ({"a": [1, 2], "b": trees.Bag(3, 4)}, {"a": "A", "b": trees.Bag(None, "B")})
operations(
    "parts",
    {
        "combine, node by node": lambda: unfailing(lambda: partax.combine(ONE, OTHER), ONE, OTHER),
        "broadcast_prefix": lambda: unfailing(
            lambda: _core.broadcast_prefix(TAKEN[1], TAKEN[0], lambda x: x is None, "prefix", "tree"), *TAKEN
        ),
        "flat_partition": lambda: of_model(lambda given: partax.flat_partition(given, partax.is_array)),
    },
)


@operation("flat_combine")
def _() -> Case:
    spec, arrays, rest = partax.flat_partition(model(), partax.is_array)
    run = lambda: partax.flat_combine(spec, arrays, rest)
    return unfailing(run, spec, arrays, rest, *arrays.values(), state=lambda: (spec.paths, spec.separator))


# --- nodes that are found


NEW = object()
operations(
    "tree",
    {
        "at, a node and an array": lambda: of_model(
            lambda given: tree.at(lambda t: (t["layers"][1], t["bag"].items[0]), given, (NEW, 5))
        ),
        "equal": lambda: of_model(lambda given: tree.equal(given, given)),
    },
)


# --- what is refused

RAISES: Any = trees.Tray(1, [Failing()])


def unlike(run: Callable[..., Any], one: Any, other: Any, told: str) -> Case:
    return refused(lambda: run(one, other), told, ValueError, one, other)


operations(
    "refused",
    {
        "what cannot be static": lambda: refused(
            lambda: _core.flatten({"a": [trees.Bag(label=trees.array(2))]}, "model"), "model['a'][0]", TypeError
        ),
        # With its frame made: CPython 3.11 loses the exception where it cannot make the frame of the caller.
        "a flatten function that raises": lambda: refused(
            lambda: (sys._getframe(), _core.flatten(RAISES, "model")), "flatten failed", LookupError, RAISES
        ),
        "parts that differ": lambda: unlike(
            partax.combine, {"a": [trees.array(1), 2]}, {"a": [None]}, "pytrees[1]['a']"
        ),
    },
)


# --- values


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


@operation("Static: made, hash, equality, text")
def _() -> Case:
    value = ([1, {"a": (2, "x")}], bytearray(b"y"))

    def run() -> Any:
        one, other = partax.tree.Static(value), partax.tree.Static(([1, {"a": (2, "x")}], bytearray(b"y")))
        return hash(one) == hash(other), one == other, repr(one), one.value

    return unfailing(run, value)
