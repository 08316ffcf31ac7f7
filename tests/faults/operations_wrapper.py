"""Operations on the wrapper: hits of every family, look-ups, misses, compiled calls, its life and death."""

from __future__ import annotations

import collections
import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from case import Case, operation, operations
from checks import equals, exactly, says

import flax_trees
import trees
from partax import _core, filter_jit
from reference import to_jax


def plus_one(tree: Any) -> Any:
    return trees.add_one(tree)


def hit_case(make: Callable[[], Any], *, allocates: bool = True, **options: Any) -> Case:
    f = filter_jit(plus_one, **options)
    tree = make()
    expected = to_jax(plus_one(make()))
    f(tree)
    f(tree)
    info = f.cache_info()

    def state() -> Any:
        return f.cache_info()._replace(hits=0)

    def check(value: Any) -> None:
        exactly(expected)(value)
        assert f.cache_info()._replace(hits=0) == info._replace(hits=0), "traced again"

    arrays = [x for x in jax.tree.leaves(tree) if trees.is_array(x)]
    watched = (tree, f, *arrays)
    return Case(lambda: f(tree), check, state=state, watched=watched, allocates=allocates)


def samples(*names: str) -> Callable[[], Any]:
    return lambda: [trees.SAMPLES[name]() for name in names]


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
        "wrapped modules and partials": lambda: hit_case(
            samples(
                "module_wrapper", "module_of_module", "eqx_partial", "jax_partial_keywords", "bound_method", "eqx_vmap"
            )
        ),
        "many leaves": lambda: hit_case(lambda: [trees.array(1) for _ in range(200)]),
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


@operation("hit: bound modules and optimizer state")
def _() -> Case:
    return bound_case(lambda: (trees.make_model(), trees.SAMPLES["optax_chain"]()))


@operation("hit: bound static leaves")
def _() -> Case:
    return bound_case(lambda: [trees.array(1), *range(100), *trees.SAMPLES["statics"]()])


@operation("the first call with a bound tree")
def _() -> Case:
    f = filter_jit(plus_one)
    tree = trees.make_model()
    f(tree)
    return Case(lambda: f.bind(tree)(), exactly(to_jax(plus_one(trees.make_model()))), watched=(f,), keeps=True)


def parts_case(f: Any, prepare: Callable[[], object] = lambda: None) -> Case:
    """Each call gives parts of its arguments back, and makes the others anew."""
    tree = trees.Pair(trees.make_model(), [trees.Layer(trees.array(2)), (trees.array(1), "s")])
    f(tree)

    def run() -> Any:
        model, layer, pair, parts = f(tree)
        given = [layer is tree.right[0], pair is tree.right[1], parts[1] is tree.right[0]]
        return given, model is tree.left, to_jax(model)

    expected = ([True, True, False], False, to_jax(tree.left))
    return Case(run, exactly(expected), prepare=prepare, watched=(tree, *tree.right, f))


def parts_of(tree: Any) -> Any:
    return tree.left, tree.right[0], tree.right[1], [1, tree.right[0]]


@operation("hit: parts of arguments")
def _() -> Case:
    return parts_case(filter_jit(parts_of))


@operation("miss: parts of arguments")
def _() -> Case:
    f = filter_jit(lambda tree: parts_of(tree))
    return parts_case(f, f.clear_cache)


@operation("hit: named tuples, some with a __new__ of their own")
def _() -> Case:
    class Own(collections.namedtuple("Own", "left right")):
        def __new__(cls, left: Any, right: Any) -> Any:
            return super().__new__(cls, left, right)

    return hit_case(lambda: [trees.Pair(trees.array(1), trees.array(2)), Own(trees.array(1), 3)])


@operation("hit: forwarded NumPy arrays")
def _() -> Case:
    f = filter_jit(lambda x, y: (x, {"y": y, "sum": x + y}))
    x, y = np.ones(2, np.float32), np.arange(2, dtype=np.float32)
    f(x, y)
    expected = to_jax((x, {"y": y, "sum": x + y}))
    return Case(lambda: f(x, y), exactly(expected), state=lambda: f.cache_info()._replace(hits=0), watched=(x, y, f))


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

    return Case(run, exactly((True, trees.array(2) + 1)), state=lambda: f.cache_info()._replace(hits=0))


@operation("hit: an unflatten function that raises")
def _() -> Case:
    class Picky:
        refuses = False

        def __init__(self, x: Any) -> None:
            if Picky.refuses:
                raise LookupError("not now")
            self.x = x

    jax.tree_util.register_pytree_node(Picky, lambda p: ((p.x,), "aux"), lambda _, c: Picky(*c))
    f = filter_jit(lambda x: [Picky(x + 1), 1])
    x = trees.array(2)
    f(x)

    def run() -> Any:
        Picky.refuses = True
        try:
            return f(x)
        finally:
            Picky.refuses = False

    return Case(run, says("not now"), raises=LookupError, state=f.cache_info, watched=(x, f))


@operation("call: by keyword, defaults, *args, **kwargs")
def _() -> Case:
    @filter_jit
    def f(x: Any, /, a: Any, b: Any = 2, *rest: Any, key: Any = "k", **more: Any) -> Any:
        return x + a, b, rest, key, more

    x = trees.array(2)
    calls = [
        lambda: f(x, a=1),
        lambda: f(x, 1, 2, 3, 4, key="other", z=x, y=5),
        lambda: f(b=3, a=x, *(x,)),  # noqa: B026 - the order is under test
    ]
    expected = [call() for call in calls]
    run = lambda: [call() for call in calls]
    return Case(run, exactly(expected), state=lambda: f.cache_info()._replace(hits=0), watched=(x, f))


@operation("call: wrong arguments")
def _() -> Case:
    f = filter_jit(lambda x, y: x)
    return Case(lambda: f(1, z=2), says("unexpected keyword argument"), raises=TypeError, state=f.cache_info)


@operation("call: an array that in_shardings do not fit", quick=False)
def _() -> Case:
    sharding = jax.sharding.NamedSharding(jax.make_mesh((1,), ("d",)), jax.sharding.PartitionSpec("d"))
    f = filter_jit(lambda tree: tree, in_shardings=sharding)
    tree = {"w": trees.array()}
    return Case(lambda: f(tree), says("`tree['w']`"), raises=ValueError, state=f.cache_info, watched=(tree, f))


@operation("call: a bound method, and a module")
def _() -> Case:
    class Scaled(trees.Layer):
        @filter_jit
        def times(self, x: Any) -> Any:
            return self.weight * x

    layer, model, x = Scaled(trees.array(2)), trees.make_model(), trees.array(3)
    f = filter_jit(model)
    expected = to_jax((layer.times(trees.array(2)), f(x)))
    run = lambda: (layer.times(trees.array(2)), f(x))
    return Case(run, exactly(expected), state=lambda: f.cache_info()._replace(hits=0), watched=(layer, model, x))


@operation("look-up: five keys in turns")
def _() -> Case:
    f = filter_jit(lambda tree, n: (tree["x"] + n[0], n))
    x = trees.array(2)
    keys = [[n, ("k", str(n)), adder(n)] for n in range(5)]
    order = [0, 3, 1, 4, 2, 2, 0]

    def run() -> Any:
        return [f({"x": x}, keys[i])[0] for i in order]

    run()
    expected = [x + i for i in order]
    return Case(run, exactly(expected), state=lambda: f.cache_info()._replace(hits=0), watched=(x, f))


@operation("look-up: an error in a static value")
def _() -> Case:
    f = filter_jit(lambda x: x)
    f([1])
    bad = trees.make_model()
    object.__setattr__(bad.layers[1], "scale", trees.array(1))
    return Case(lambda: f(bad), says("x.layers[1].scale"), raises=TypeError, state=f.cache_info, watched=(bad, f))


@operation("look-up: keys that cannot be sorted")
def _() -> Case:
    f = filter_jit(lambda x: x)
    f([1])
    bad = [{"a": {1: 2, "b": 3}}]
    return Case(lambda: f(bad), says("x[0]['a']"), raises=TypeError, state=f.cache_info, watched=(bad, f))


# --- misses


def whole_keys(f: Any) -> Any:
    """Whether every key has a trace: none is half made."""
    return lambda: f.cache_info().static_keys <= f.cache_info().traces


@operation("miss: first call", quick=False)
def _() -> Case:
    f = filter_jit(plus_one, callables="identity")
    make = lambda: {"model": trees.make_model(1), "n": [1, 2, "x"], "bag": trees.Bag(trees.array(1), label=[1])}
    tree = make()
    expected = to_jax(plus_one(make()))
    return Case(lambda: f(tree), exactly(expected), prepare=f.clear_cache, state=whole_keys(f), watched=(tree, f))


@operation("miss: first call of one array")
def _() -> Case:
    f = filter_jit(lambda x, n: (x, x + n, n), callables="identity")
    x = trees.array(2)
    return Case(lambda: f(x, 3), exactly((x, x + 3, 3)), prepare=f.clear_cache, state=whole_keys(f), watched=(x, f))


@operation("miss: another shape", quick=False)
def _() -> Case:
    f = filter_jit(lambda x: (x.shape, x * 2), callables="identity")
    one, two = trees.array(2), trees.array(3)

    def prepare() -> None:
        f.clear_cache()
        f(one)

    expected = ((3,), two * 2)
    return Case(lambda: f(two), exactly(expected), prepare=prepare, state=whole_keys(f), watched=(two, f))


@operation("miss: keys beyond the limit", quick=False)
def _() -> Case:
    f = filter_jit(lambda x, n: x + n[0], callables="identity", cache_size=2)
    x = trees.array(2)

    def prepare() -> None:
        f.clear_cache()
        f(x, [1])
        f(x, [2])

    run = lambda: (f(x, [3]), f(x, [3]))
    return Case(run, exactly((x + 3, x + 3)), prepare=prepare, state=whole_keys(f), watched=(x, f))


@operation("miss: values known by weak references, in a full cache", quick=False)
def _() -> Case:
    f = filter_jit(lambda x, n, held: x + n, cache_size=2)
    x = trees.array(2)
    alive: list[Any] = []

    # The key goes with its class, wherever making it failed.
    def prepare() -> None:
        alive.clear()
        f.clear_cache()
        f(x, 1, holds(1))
        f(x, 2, None)

    def run() -> Any:
        alive[:] = [type("Local", (), {}), holds(object()), x]
        return f(x, 3, alive), f.cache_info().static_keys

    return Case(run, exactly((x + 3, 2)), prepare=prepare, watched=(x, f))


@operation("miss: a function that raises", quick=False)
def _() -> Case:
    @filter_jit
    def f(x: Any) -> Any:
        raise LookupError("always")

    x = trees.array(2)
    return Case(lambda: f(x), says("always"), raises=LookupError, state=whole_keys(f), watched=(x, f))


@operation("miss: a function that counts its traces", quick=False)
def _() -> Case:
    def make() -> Any:
        count = 0

        def counting(x: Any) -> Any:
            nonlocal count
            count += 1
            return x + 1

        return counting

    held: list[Any] = []

    def prepare() -> None:
        held[:] = [make()]

    x = trees.array(2)
    run = lambda: (filter_jit(held[0])(x), filter_jit(lambda g, x: g(x))(held[0], x))
    # The history of the lambda keeps the records of its last 256 traces, each with another `counting`.
    return Case(run, exactly((x + 1, x + 1)), prepare=prepare, watched=(x,), keeps=True)


@operation("miss: a result that cannot be static", quick=False)
def _() -> Case:
    f = filter_jit(lambda x: {"a": trees.Bag(x, label={1: x})}, callables="identity")
    x = trees.array(2)
    try:
        f(x)
    except Exception as error:
        return Case(lambda: f(x), says(), raises=type(error), state=whole_keys(f))
    return Case(lambda: f(x)["a"].items[0], exactly(x), prepare=f.clear_cache, state=whole_keys(f))


@operation("miss: explained", quick=False)
def _() -> Case:
    lines: list[str] = []
    f = filter_jit(lambda tree, n: tree["x"] + n, callables="identity")
    x = trees.array(2)

    def prepare() -> None:
        f.clear_cache()
        f({"x": x}, 1)

    def run() -> Any:
        lines.clear()
        value = f({"x": x}, 2)
        reasons = [trace.reason for key in f.report().keys for trace in key.traces]
        return value, bool(reasons) and all(reasons)

    return Case(run, exactly((x + 2, True)), prepare=prepare, state=whole_keys(f), watched=(x, f))


# --- programs


@operation("compiled call")
def _() -> Case:
    f = filter_jit(lambda tree, n: {"y": tree["x"] * n, "n": n})
    x = trees.array(2)
    compiled = f.lower({"x": x}, 3).compile()
    expected = to_jax({"y": x * 3, "n": 3})
    return Case(lambda: compiled({"x": x}, 3), exactly(expected), watched=(x, compiled))


@operation("compiled call: another static part")
def _() -> Case:
    f = filter_jit(lambda tree, n: {"y": tree["x"] * n, "n": n})
    x = trees.array(2)
    compiled = f.lower({"x": x}, 3).compile()
    return Case(lambda: compiled({"x": x}, 4), says("n"), raises=TypeError, watched=(x, compiled))


@operation("lower, compile, call", quick=False)
def _() -> Case:
    f = filter_jit(lambda tree, n: {"y": tree["x"] * n, "n": n})
    x = trees.array(2)
    run = lambda: f.lower({"x": x}, n=3).compile()({"x": x}, n=3)
    return Case(run, exactly(to_jax({"y": x * 3, "n": 3})), prepare=f.clear_cache, state=whole_keys(f), watched=(x, f))


@operation("eval_shape")
def _() -> Case:
    f = filter_jit(lambda tree: (tree["x"] * 2, 1))
    x = jax.ShapeDtypeStruct((2,), np.float32)
    return Case(lambda: f.eval_shape({"x": x}), equals((x, 1)), state=whole_keys(f), watched=(f,))


# --- the wrapper's own life


def holds(n: Any) -> Callable[[Any], Any]:
    def added(x: Any) -> Any:
        return x + n

    return added


@operation("make a wrapper")
def _() -> Case:
    def run() -> Any:
        local = object()
        first, like = filter_jit(lambda x: (x, local), callables="identity"), filter_jit(holds(1))
        return like._cache is filter_jit(holds(1))._cache, first.cache_info().static_keys

    return Case(run, equals((True, 0)))


@operation("make a wrapper of an unhashable option")
def _() -> Case:
    run = lambda: filter_jit(holds(1), compiler_options={"a": trees.array(1)})
    return Case(run, says("compiler_options"), raises=TypeError) if _fails(run) else Case(run, lambda value: None)


def _fails(run: Callable[[], Any]) -> bool:
    try:
        run()
    except TypeError as error:
        return "compiler_options" in str(error)
    return False


@operation("a wrapper whose function changes")
def _() -> Case:
    contents = {"n": 1}

    def f(x: Any) -> Any:
        return x + contents["n"]

    wrapper = filter_jit(f)
    x = trees.array(2)

    def run() -> Any:
        results = []
        for n in (1, 2, 1):
            contents["n"] = n
            results.append(wrapper(x))
        return results

    def prepare() -> None:
        contents["n"] = 1

    run()
    return Case(run, exactly([x + 1, x + 2, x + 1]), prepare=prepare, watched=(x, wrapper))


@operation("attributes, text, as a pytree, pickled")
def _() -> Case:
    wrapper = filter_jit(trees.double)

    def run() -> Any:
        leaves, treedef = jax.tree.flatten(wrapper)
        again = jax.tree.unflatten(treedef, leaves)
        copies = [copy.copy(wrapper), pickle.loads(pickle.dumps(wrapper)), again]
        return [w.__wrapped__ is trees.double for w in copies], wrapper.__name__, repr(wrapper), wrapper.__doc__

    return Case(run, equals(([True] * 3, "double", repr(wrapper), "Twice x.")), state=wrapper.cache_info)


@operation("bound by __get__")
def _() -> Case:
    wrapper = filter_jit(lambda self, x: (self[0] * x, self))
    x = trees.array(2)
    instance = [2]
    wrapper.__get__(instance)(x)
    return Case(lambda: wrapper.__get__(instance)(x), exactly((2 * x, [2])), watched=(instance, x, wrapper))


@operation("cache_info, entries")
def _() -> Case:
    f = filter_jit(lambda x, n: x, callables="identity")
    x = trees.array(2)
    f(x, 1)
    f(x, 2)
    run = lambda: (tuple(f.cache_info())[:2], len(f._cache.entries()), f._cache in _core.caches())
    return Case(run, equals(((2, 2), 2, True)), state=f.cache_info, watched=(x, f))


@operation("clear_cache")
def _() -> Case:
    f = filter_jit(lambda x, n: x, callables="identity")
    x = trees.array(2)

    def prepare() -> None:
        f(x, 1)
        f(x, 2)

    def run() -> Any:
        f.clear_cache()
        return f.cache_info()[:4]

    return Case(run, equals((0, 0, 0, 0)), prepare=prepare, watched=(x, f))


@operation("functions die")
def _() -> Case:
    """Their caches go or wait, which nothing may stop: no allocation fails there."""
    x = trees.array(2)
    functions: list[Any] = []

    def prepare() -> None:
        witness = trees.Bag(1)
        functions[:] = [holds(1), lambda x: (x, witness)]
        for function in functions:
            filter_jit(function)(x)

    def run() -> Any:
        before = len(_core.caches())
        dead = [weakref.ref(function) for function in functions]
        functions.clear()
        gc.collect()
        return [ref() for ref in dead], before - len(_core.caches()) >= 1

    prepare()
    functions.clear()

    def check(value: Any) -> None:
        assert value[0] == [None, None][: len(value[0])], "alive"

    return Case(run, check, prepare=prepare, watched=(x,))


@operation("garbage collection")
def _() -> Case:
    """A cycle through a wrapper, its key and its result, visited and cleared."""
    held: list[Any] = []

    def prepare() -> None:
        f = filter_jit(lambda x, bag: (x, bag))
        bag = trees.Bag(1)
        bag.label = trees.Tray(f, 1)
        f.bag = bag
        held[:] = [f, weakref.ref(f)]

    def run() -> Any:
        gc.collect()
        alive = held[1:]
        held.clear()
        gc.collect()
        return [ref() for ref in alive if ref() is not None]

    return Case(run, equals([]), prepare=prepare, allocates=False)
