"""Operations on a wrapper whose program is there: hits of every family, calls in every form, look-ups, errors."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from case import Case, operation, operations
from checks import exactly, says

import flax_trees
import trees
from partax import filter_jit
from reference import to_jax


def plus_one(tree: Any) -> Any:
    return trees.add_one(tree)


def but_hits(f: Any) -> Callable[[], Any]:
    """What the cache of a wrapper tells, but for the number of hits."""
    return lambda: f.cache_info()._replace(hits=0)


def hit_case(make: Callable[[], Any], *, allocates: bool = True, **options: Any) -> Case:
    f = filter_jit(plus_one, **options)
    tree = make()
    expected = to_jax(plus_one(make()))
    f(tree)
    f(tree)
    state = but_hits(f)
    info = state()

    def check(value: Any) -> None:
        exactly(expected)(value)
        assert state() == info, "traced again"

    watched = (tree, f, *(x for x in jax.tree.leaves(tree) if trees.is_array(x)))
    return Case(lambda: f(tree), check, state=state, watched=watched, allocates=allocates)


class Own(collections.namedtuple("Own", "left right")):
    """With a `__new__` of its own."""

    def __new__(cls, left: Any, right: Any) -> Any:
        return super().__new__(cls, left, right)


def samples(*names: str) -> Callable[[], Any]:
    return lambda: [trees.SAMPLES[name]() for name in names]


WRAPPED = ("module_wrapper", "module_of_module", "eqx_partial", "jax_partial_keywords", "bound_method", "eqx_vmap")
operations(
    "hit",
    {
        "one array": lambda: hit_case(trees.SAMPLES["array"], callables="identity", allocates=False),
        "modules and optimizer state": lambda: hit_case(samples("module_nested", "optax_chain")),
        "dictionaries": lambda: hit_case(samples("dict", "dict_int_keys", "ordered_dict", "defaultdict")),
        "registered nodes": lambda: hit_case(samples("node_without_keys", "node_with_keys", "dataclass")),
        "declared classes, and dataclasses with slots": lambda: hit_case(
            samples("declared", "declared_slots", "dataclass_slots", "jax_partial")
        ),
        "objects of Flax": lambda: hit_case(lambda: [trees.array(1), flax_trees.samples()]),
        "static leaves": lambda: hit_case(lambda: [trees.array(1), *range(100), *trees.SAMPLES["statics"]()]),
        "wrapped modules and partials": lambda: hit_case(samples(*WRAPPED)),
        "many leaves": lambda: hit_case(lambda: [trees.array(1) for _ in range(200)]),
        "named tuples": lambda: hit_case(lambda: [trees.Pair(trees.array(1), trees.array(2)), Own(trees.array(1), 3)]),
    },
)


def bound_case(make: Callable[[], Any]) -> Case:
    """A call with a bound tree, after those that it learns from."""
    f = filter_jit(lambda tree, x: plus_one((tree, x)))
    tree, x = make(), trees.array(3)
    bound = f.bind(tree)
    for _ in range(4):
        bound(x)
    return Case(lambda: bound(x), exactly(to_jax(plus_one((make(), x)))), watched=(f, bound, x))


operations(
    "hit with a bound tree",
    {
        "modules and optimizer state": lambda: bound_case(lambda: (trees.make_model(), trees.SAMPLES["optax_chain"]())),
        "static leaves": lambda: bound_case(lambda: [trees.array(1), *range(100), *trees.SAMPLES["statics"]()]),
    },
)


@operation("the first call with a bound tree")
def _() -> Case:
    f = filter_jit(plus_one)
    tree = trees.make_model()
    f(tree)
    return Case(lambda: f.bind(tree)(), exactly(to_jax(plus_one(trees.make_model()))), watched=(f,), keeps=True)


def parts_of(tree: Any) -> Any:
    return tree.left, tree.right[0], tree.right[1], [1, tree.right[0]]


def parts_case(misses: bool) -> Case:
    """Each call gives parts of its arguments back, and makes the others anew."""
    f = filter_jit(lambda tree: parts_of(tree))
    tree = trees.Pair(trees.make_model(), [trees.Layer(trees.array(2)), (trees.array(1), "s")])
    f(tree)

    def run() -> Any:
        model, layer, pair, parts = f(tree)
        given = [layer is tree.right[0], pair is tree.right[1], parts[1] is tree.right[0]]
        return given, model is tree.left, to_jax(model)

    expected = ([True, True, False], False, to_jax(tree.left))
    prepare = f.clear_cache if misses else lambda: None
    return Case(run, exactly(expected), prepare=prepare, watched=(tree, *tree.right, f))


operations("parts of arguments", {"hit": lambda: parts_case(False), "miss": lambda: parts_case(True)})


def calls_case(f: Any, *calls: Callable[[], Any], watched: tuple[Any, ...] = ()) -> Case:
    """Calls whose programs are there."""
    run = lambda: [call() for call in calls]
    return Case(run, exactly(to_jax(run())), state=but_hits(f), watched=(*watched, f))


@operation("hit: forwarded NumPy arrays")
def _() -> Case:
    f = filter_jit(lambda x, y: (x, {"y": y, "sum": x + y}))
    x, y = np.ones(2, np.float32), np.arange(2, dtype=np.float32)
    return calls_case(f, lambda: f(x, y), watched=(x, y))


def adder(n: Any) -> Callable[[Any], Any]:
    return lambda x: x + (n[0] if isinstance(n, list) else n)


@operation("hit: a function made anew, returned")
def _() -> Case:
    f = filter_jit(lambda g, x: (g, g(x)))
    f(adder([1]), trees.array(2))

    def run() -> Any:
        mine = adder([1])
        given, value = f(mine, trees.array(2))
        return given is mine, value

    return Case(run, exactly((True, trees.array(2) + 1)), state=but_hits(f))


@operation("call: by keyword, defaults, *args, **kwargs")
def _() -> Case:
    @filter_jit
    def f(x: Any, /, a: Any, b: Any = 2, *rest: Any, key: Any = "k", **more: Any) -> Any:
        return x + a, b, rest, key, more

    x = trees.array(2)
    return calls_case(
        f,
        lambda: f(x, a=1),
        lambda: f(x, 1, 2, 3, 4, key="other", z=x, y=5),
        lambda: f(b=3, a=x, *(x,)),  # noqa: B026 - the order is under test
        watched=(x,),
    )


@operation("call: a bound method, and a module")
def _() -> Case:
    class Scaled(trees.Layer):
        @filter_jit
        def times(self, x: Any) -> Any:
            return self.weight * x

    layer, model, x = Scaled(trees.array(2)), trees.make_model(), trees.array(3)
    f = filter_jit(model)
    return calls_case(f, lambda: layer.times(trees.array(2)), lambda: f(x), watched=(layer, model, x))


def of_no_static() -> Any:
    bad = trees.make_model()
    object.__setattr__(bad.layers[1], "scale", trees.array(1))
    return bad


def refused_case(argument: Any, told: str, kind: type[Exception] = TypeError, **options: Any) -> Case:
    """A call that names what is wrong in its argument, beside another one that was right."""
    f = filter_jit(lambda x: x, **options)
    f([1])
    return Case(lambda: f(argument), says(told), raises=kind, state=f.cache_info, watched=(argument, f))


operations(
    "error",
    {
        "in a static value": lambda: refused_case(of_no_static(), "x.layers[1].scale"),
        "keys that cannot be sorted": lambda: refused_case([{"a": {1: 2, "b": 3}}], "x[0]['a']"),
    },
)


@operation("error: wrong arguments")
def _() -> Case:
    f = filter_jit(lambda x, y: x)
    return Case(lambda: f(1, z=2), says("unexpected keyword argument"), raises=TypeError, state=f.cache_info)


@operation("error: an array that in_shardings do not fit", quick=False)
def _() -> Case:
    sharding = jax.sharding.NamedSharding(jax.make_mesh((1,), ("d",)), jax.sharding.PartitionSpec("d"))
    return refused_case({"w": trees.array()}, "`x['w']`", ValueError, in_shardings=sharding)
