"""Operations on a wrapper that traces or compiles, and on its life and death."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from case import Case, operation, operations, refused, unfailing

import trees
from partax import _core, filter_jit

X = trees.array(2)


def whole_keys(f: Any) -> Any:
    """Whether every key has a trace: none is half made."""
    return lambda: f.cache_info().static_keys <= f.cache_info().traces


@operation("miss: first call", quick=False)
def _() -> Case:
    f = filter_jit(trees.add_one, reuse_equal_functions=False)
    tree = {"model": trees.make_model(1), "n": [1, 2, "x"], "bag": trees.Bag(trees.array(1), label=[1])}
    return unfailing(lambda: f(tree), tree, f, prepare=f.clear_cache, state=whole_keys(f))


def holds(n: Any) -> Callable[[Any], Any]:
    def added(x: Any) -> Any:
        return x + n

    return added


@operation("miss: values known by weak references, in a full cache", quick=False)
def _() -> Case:
    f = filter_jit(lambda x, n, held: x + n, cache_size=2)
    alive: list[Any] = []

    # The key goes with its class, wherever making it failed.
    def prepare() -> None:
        alive.clear()
        f.clear_cache()
        f(X, 1, holds(1))
        f(X, 2, None)

    def run() -> Any:
        alive[:] = [type("Local", (), {}), holds(object()), X]
        return f(X, 3, alive), f.cache_info().static_keys

    prepare()
    return unfailing(run, X, f, prepare=prepare)


@operation("miss: a function that raises", quick=False)
def _() -> Case:
    @filter_jit
    def f(x: Any) -> Any:
        raise LookupError("always")

    return refused(lambda: f(X), "always", LookupError, X, f, state=whole_keys(f))


def compiled_case(n: int) -> Case:
    """A call of what was compiled for 3."""
    f = filter_jit(lambda tree, n: {"y": tree["x"] * n, "n": n})
    compiled = f.lower({"x": X}, 3).compile()
    run = lambda: compiled({"x": X}, n)
    return unfailing(run, X, compiled) if n == 3 else refused(run, "n", TypeError, X, compiled)


operations("compiled call", {"its own": lambda: compiled_case(3), "another static part": lambda: compiled_case(4)})


@operation("lower, compile, call", quick=False)
def _() -> Case:
    f = filter_jit(lambda tree, n: {"y": tree["x"] * n, "n": n})
    run = lambda: f.lower({"x": X}, n=3).compile()({"x": X}, n=3)
    return unfailing(run, X, f, prepare=f.clear_cache, state=whole_keys(f))


@operation("eval_shape")
def _() -> Case:
    f = filter_jit(lambda tree: (tree["x"] * 2, 1))
    x = jax.ShapeDtypeStruct((2,), np.float32)
    return unfailing(lambda: f.eval_shape({"x": x}), f, state=whole_keys(f))


@operation("make a wrapper")
def _() -> Case:
    def run() -> Any:
        local = object()
        first, like = filter_jit(lambda x: (x, local), reuse_equal_functions=False), filter_jit(holds(1))
        return like._cache is filter_jit(holds(1))._cache, first.cache_info().static_keys

    return unfailing(run)


@operation("attributes, text, as a pytree, pickled")
def _() -> Case:
    wrapper = filter_jit(trees.double)

    def run() -> Any:
        leaves, treedef = jax.tree.flatten(wrapper)
        again = jax.tree.unflatten(treedef, leaves)
        copies = [copy.copy(wrapper), pickle.loads(pickle.dumps(wrapper)), again]
        return [w.__wrapped__ is trees.double for w in copies], wrapper.__name__, repr(wrapper), wrapper.__doc__

    return unfailing(run, state=wrapper.cache_info)


@operation("cache: info, entries")
def _() -> Case:
    f = filter_jit(lambda x, n: x, reuse_equal_functions=False)
    prepare = lambda: (f(X, 1), f(X, 2))
    prepare()
    run = lambda: (*f.cache_info()[:2], len(f._cache.entries()), f._cache in _core.caches())
    return unfailing(run, X, f, prepare=prepare)


@operation("functions die")
def _() -> Case:
    """Their caches go or wait, which nothing may stop: nothing is allocated there."""
    functions: list[Any] = []

    def prepare() -> None:
        witness = trees.Bag(1)
        functions[:] = [holds(1), lambda x: (x, witness)]
        for function in functions:
            filter_jit(function)(X)

    def run() -> Any:
        dead = [weakref.ref(function) for function in functions]
        functions.clear()
        gc.collect()
        return [ref() for ref in dead if ref() is not None]

    return unfailing(run, X, prepare=prepare, allocates=False)
