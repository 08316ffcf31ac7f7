"""Many calls neither grow memory nor leave anything alive. bench/soak.py makes ten million."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import partax
from conftest import TraceCounter
from growth import CALLS, Witness, check_steady, dies
from partax import filter_jit
from trees import SAMPLES, Bag, Layer, array, make_model

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose

Collect = Callable[[], None]

# --- growth


def test_many_calls_with_changing_trees() -> None:
    x = array(3)
    makers: list[Callable[[], Any]] = [
        lambda: [x, 1, {"k": x}],
        lambda: {"b": x, "a": (x, "s", 2.5)},
        lambda: (x, [x, [x, None]]),
        lambda: Layer(x, x, rate=float("nan")),
        lambda: Bag(x, label=["mutable", [1]]),
        lambda: {"n": {1, 2}, "x": x},
        lambda: [np.float32(1), bytearray(b"ab")],
    ]
    f = filter_jit(lambda tree, n: (tree, n))
    check_steady(lambda i: f(makers[i % len(makers)](), i % 3))
    assert f.cache_info().traces == 3 * len(makers)


def test_many_calls_with_every_family(traces: TraceCounter) -> None:
    @filter_jit
    def f(tree: Any) -> Any:
        traces.tick()
        return tree

    makers = list(SAMPLES.values())
    for make in makers:
        f(make())
    before = traces.count
    check_steady(lambda i: f(makers[i % len(makers)]()), calls=CALLS // 10)
    assert traces.count == before <= len(makers)


def test_many_wrappers_around_one_function() -> None:
    def f(x: jax.Array, n: int) -> jax.Array:
        return x

    x = array(3)
    check_steady(lambda i: filter_jit(f)(x, i % 2), calls=CALLS // 10)
    model = make_model()
    check_steady(lambda i: filter_jit(model)(x), calls=CALLS // 10)
    check_steady(lambda i: filter_jit(model.layers[0].total)(x), calls=CALLS // 20)


def test_many_errors() -> None:
    f = filter_jit(lambda x, n: (x, n))
    bad = Layer(array(2, 2))
    object.__setattr__(bad, "scale", np.arange(2.0))
    deep: Any = []
    deep.append(deep)
    calls: list[tuple[Any, ...]] = [(1,), (1, 2, 3), (bad, 1), ({1: 1, "a": 2}, 1), (deep, 1)]

    def run(i: int) -> None:
        with pytest.raises((TypeError, ValueError, RecursionError)):
            f(*calls[i % len(calls)])

    check_steady(run, calls=CALLS // 20, warm=50)
    assert f.cache_info().static_keys == 0


@dies  # each exception has functions of jax's
def test_many_failing_traces() -> None:
    @filter_jit
    def f(x: jax.Array, n: Any) -> jax.Array:
        raise KeyError(n)

    def run(i: int) -> None:
        with pytest.raises(KeyError):
            f(array(2), (i, Witness()))

    check_steady(run, calls=200, warm=50)
    assert f.cache_info().static_keys == 0


def test_evicted_keys_free_their_statics(collect: Collect) -> None:
    f = filter_jit(lambda x, value, fun: (x + 1, value), cache_size=4)
    alive: list[weakref.ref[Any]] = []
    for i in range(40):
        witness = Witness()

        def fun(x: jax.Array, i: int = i) -> jax.Array:
            return x * i

        alive += [weakref.ref(witness), weakref.ref(fun)]
        assert f(array(2), (i, witness), fun)[1] == (i, witness)
    del witness, fun
    collect()
    assert sum(ref() is not None for ref in alive) <= 2 * 4
    f.clear_cache()
    collect()
    assert [ref() for ref in alive] == [None] * 80


# --- reference counts


def drift(run: Callable[[], object], watched: list[Any], times: int) -> dict[str, int]:
    """By how much the counts of references to objects move in so many runs, after the first one."""
    run()
    before = [sys.getrefcount(it) for it in watched]
    for _ in range(times):
        run()
    after = [sys.getrefcount(it) for it in watched]
    return {f"{i}: {type(watched[i])}": b - a for i, (a, b) in enumerate(zip(before, after, strict=True))}


def test_reference_counts_do_not_move() -> None:
    x, value, model = array(3), ("static", 12345.678), make_model()
    texts: list[str] = ["text"]
    f = filter_jit(lambda m, a, *, v, k=None: (m, a, v, k, m(a), texts))
    watched: list[Any] = [x, value, model, model.layers, model.layers[0].weight, None, texts, f]
    watched += [type(model), Layer.total, True, ()]

    def calls() -> None:
        for _ in range(10):
            f(model, x, v=value)
            f(m=model, a=x, v=value, k=None)

    moved = drift(calls, watched, 100)
    assert all(abs(count) < 50 for count in moved.values()), moved


def test_reference_counts_do_not_move_with_errors() -> None:
    f = filter_jit(lambda tree, n: (tree, n))
    bad, x = [array(2), {1: 1, "a": 2}], array(2)
    x_bad = bad[0]

    def fail() -> None:
        for args in ((bad, 1), (x,), (x, 1, 2)):
            with pytest.raises((TypeError, ValueError)):
                f(*args)

    moved = drift(fail, [x, x_bad, bad, f, None], 100)
    assert all(abs(count) < 20 for count in moved.values()), moved


# --- nothing stays alive


def test_inputs_and_outputs_die_at_once_on_a_hit() -> None:
    f = filter_jit(lambda tree: (tree, tree["x"] + 1))
    gc.disable()
    try:
        for _ in range(3):
            tree = {"x": array(3), "layer": Layer(array(2, 2))}
            out = f(tree)
            alive = [weakref.ref(o) for o in (tree["x"], tree["layer"], out[1], out[0]["layer"])]
            del tree, out
    finally:
        gc.enable()
    assert [ref() for ref in alive] == [None] * 4  # without the collector: no cycles


def test_gradients_and_transformations_leave_nothing(collect: Collect) -> None:
    model = make_model()
    alive = [weakref.ref(model), weakref.ref(model.layers[0].weight)]
    f = filter_jit(lambda model, x: model(x).sum())
    for _ in range(2):
        grads = partax.filter_grad(f)(model, array(3))
        jax.vmap(lambda x, m=model: f(m, x))(array(2, 3))
    assert grads.layers[0].weight.shape == (3, 3)
    del model, grads
    collect()
    assert [ref() for ref in alive] == [None, None]


def test_tracers_die_with_their_trace(collect: Collect) -> None:
    tracers: list[weakref.ref[Any]] = []

    @filter_jit
    def f(x: jax.Array) -> Any:
        tracers.append(weakref.ref(x))
        return x, x + 1, x.shape

    jax.jit(lambda x: f(x)[1])(array(2))
    jax.grad(lambda x: f(x)[1].sum())(array(2))
    f(array(2))
    collect()
    assert tracers and [ref() for ref in tracers] == [None] * len(tracers)
