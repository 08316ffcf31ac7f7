"""Guards that many calls neither grow memory nor leave anything alive, and that caches are bounded, least recently
used first, and tell what they hold. bench/soak.py makes more."""

import gc
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
import pytest

from conftest import TraceCounter
from growth import CALLS, Witness, check_steady
from partax import filter_jit
from trees import SAMPLES, Layer, array, assert_same, make_model

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose

Collect = Callable[[], None]


def test_many_calls_with_every_family(traces: TraceCounter) -> None:
    f, makers = filter_jit(lambda tree: traces.seen(tree)), list(SAMPLES.values())
    for make in makers:
        f(make())
    before = traces.count
    check_steady(lambda i: f(makers[i % len(makers)]()), calls=CALLS // 10)
    assert traces.count == before <= len(makers)


def test_many_wrappers_around_one_function() -> None:
    x, model = array(3), make_model()
    of_number = lambda x, n: x
    check_steady(lambda i: filter_jit(of_number)(x, i % 2), calls=CALLS // 10)
    check_steady(lambda i: (filter_jit(model)(x), filter_jit(model.layers[0].total)(x)), calls=CALLS // 20)


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


MANY = 400


def alive(name: str) -> int:
    """How many objects there are whose type has this name."""
    return sum(type(obj).__name__ == name for obj in gc.get_objects())


def test_static_keys_of_one_wrapper_are_bounded(collect: Collect) -> None:
    x, jitted = array(2), alive("PjitFunction")
    f = filter_jit(lambda x, n: x * n, cache_size=100)
    for n in range(MANY):
        f.eval_shape(x, n)
        if n % 200 == 0:
            assert_same(f(x, n), x * n)
    collect()
    assert f.cache_info().static_keys == 100
    assert alive("PjitFunction") - jitted <= 2 * 100


@pytest.mark.slow
def test_wrappers_of_callables_that_are_gone_are_bounded(collect: Collect) -> None:
    x, caches = array(2), alive("CallCache")
    adding = lambda n: lambda x: x + n
    for n in range(MANY):
        f = filter_jit(adding(n))
        f.eval_shape(x)
        if n % 200 == 0:
            assert_same(f(x), x + n)
    del f
    collect()
    assert alive("CallCache") - caches <= 256
    assert filter_jit(adding(MANY - 1)).cache_info().traces == 1


def test_a_cache_that_waits_keeps_no_result(collect: Collect) -> None:
    for n in range(3):
        filter_jit(lambda x, n=n: (x, n, [Witness()]))(array(2))
        filter_jit(lambda x, w, n=n: (x, n, w))(array(2), Witness())
    collect()
    assert alive("Witness") == 0


def _counted(traces: TraceCounter, **options: Any) -> Any:
    return filter_jit(lambda x, n: (traces.seen(x) * n, n), **options)


def test_cache_info_counts_keys_traces_hits_and_misses(traces: TraceCounter) -> None:
    f = _counted(traces)
    assert f.cache_info() == (0, 0, 0, 0, 4096)
    for n, size in [(1, 2), (1, 2), (2, 2), (1, 3), (1, 3), (2, 2), (1, 2)]:
        f(array(size), n)
    info = f.cache_info()
    assert (info.static_keys, info.traces, info.hits, info.misses) == (2, 3, 4, 3)
    assert traces.count == 3


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("calls", [(1, 2, 1, 3, 1, 3, 2, 3, 1), (1, 1, 2, 2, 1), range(20)], ids=str)
def test_the_least_recently_used_key_goes_first(traces: TraceCounter, calls: Iterable[int], size: int) -> None:
    f, known = _counted(traces, cache_size=size), list[int]()  # the latest one last
    for n in calls:
        before, is_new = traces.count, n not in known
        assert_same(f(array(2), n), (array(2) * n, n))
        assert traces.count - before == is_new
        known = [*(it for it in known if it != n), n][-size:]
        assert (f.cache_info().static_keys, f.cache_info().max_size) == (len(known), size)


@pytest.mark.parametrize("size", [-1, 0])
def test_a_cache_size_that_makes_no_sense_is_an_error(size: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="cache_size"):
        filter_jit(lambda x: x, cache_size=size)


def test_clear_cache_while_the_function_is_traced() -> None:
    @filter_jit
    def f(x: jax.Array, n: int) -> jax.Array:
        f.clear_cache()
        return x * n

    for _ in range(2):
        assert_same(f(array(2), 3), array(2) * 3)
