"""Operations on a wrapper whose program is there: hits of every family, calls in every form, look-ups, errors."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from case import Case, operation, operations, refused, unfailing

import trees
from partax import filter_jit


def plus_one(tree: Any) -> Any:
    return trees.add_one(tree)


def calls_case(f: Any, *calls: Callable[[], Any], watched: tuple[Any, ...] = (), **more: Any) -> Case:
    """Calls whose programs are there, and which trace nothing."""
    state = lambda: f.cache_info()._replace(hits=0)
    together = lambda: ([call() for call in calls], *state())
    together()
    run = together if more.get("allocates", True) else calls[0]
    return unfailing(run, *watched, f, state=state, **more)


def hit_case(make: Callable[[], Any], *, allocates: bool = True, **options: Any) -> Case:
    f, tree = filter_jit(plus_one, **options), make()
    watched = (tree, *(x for x in jax.tree.leaves(tree) if trees.is_array(x)))
    return calls_case(f, lambda: f(tree), watched=watched, allocates=allocates)


def samples(*names: str) -> Callable[[], Any]:
    return lambda: [trees.SAMPLES[name]() for name in names]


WRAPPED = ("module_wrapper", "module_of_module", "eqx_partial", "jax_partial_keywords", "bound_method", "eqx_vmap")
operations(
    "hit",
    {
        "one array": lambda: hit_case(trees.SAMPLES["array"], reuse_equal_functions=False, allocates=False),
        "modules and optimizer state": lambda: hit_case(samples("module_nested", "optax_chain")),
        "dictionaries": lambda: hit_case(samples("dict", "dict_int_keys", "ordered_dict", "defaultdict")),
        "registered nodes": lambda: hit_case(samples("node_without_keys", "node_with_keys", "dataclass")),
        "declared classes, and dataclasses with slots": lambda: hit_case(
            samples("declared", "declared_slots", "dataclass_slots", "jax_partial")
        ),
        "static leaves": lambda: hit_case(lambda: [trees.array(1), *range(100), *trees.SAMPLES["statics"]()]),
        "wrapped modules and partials": lambda: hit_case(samples(*WRAPPED)),
        "many leaves": lambda: hit_case(lambda: [trees.array(1) for _ in range(200)]),
    },
)


@operation("hit with a bound tree")
def _() -> Case:
    """After the calls that it learns from."""
    f, x = filter_jit(lambda tree, x: plus_one((tree, x))), trees.array(3)
    bound = f.bind((trees.make_model(), trees.SAMPLES["optax_chain"](), [trees.array(1), *range(100)]))
    for _ in range(4):
        bound(x)
    return calls_case(f, lambda: bound(x), watched=(bound, x))


@operation("the first call with a bound tree")
def _() -> Case:
    f, tree = filter_jit(plus_one), trees.make_model()
    f(tree)
    return unfailing(lambda: f.bind(tree)(), f, keeps=True)


@operation("miss: parts of the arguments, returned")
def _() -> Case:
    f = filter_jit(lambda tree: (tree.left, tree.right[0], tree.right[1], [1, tree.right[0]]))
    tree = trees.Pair(trees.make_model(), [trees.Layer(trees.array(2)), (trees.array(1), "s")])

    def run() -> Any:
        model, layer, pair, parts = f(tree)
        return layer is tree.right[0], pair is tree.right[1], parts[1] is tree.right[0], model is tree.left, model

    return unfailing(run, tree, *tree.right, f, prepare=f.clear_cache)


@operation("hit: forwarded NumPy arrays")
def _() -> Case:
    f = filter_jit(lambda x, y: (x, {"y": y, "sum": x + y}))
    x, y = np.ones(2, np.float32), np.arange(2, dtype=np.float32)
    return calls_case(f, lambda: f(x, y), watched=(x, y))


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
    return refused(lambda: f(argument), told, kind, argument, f, state=f.cache_info)


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
    return refused(lambda: f(1, z=2), "unexpected keyword argument", TypeError, state=f.cache_info)


@operation("error: an array that in_shardings do not fit", quick=False)
def _() -> Case:
    sharding = jax.sharding.NamedSharding(jax.make_mesh((1,), ("d",)), jax.sharding.PartitionSpec("d"))
    return refused_case({"w": trees.array()}, "`x['w']`", ValueError, in_shardings=sharding)
