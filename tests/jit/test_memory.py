"""Guards that many calls neither grow memory nor leave anything alive, and that caches are bounded, least recently
used first, and tell what they hold. bench/soak.py makes more."""

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import pytest

from conftest import TraceCounter
from growth import CALLS, check_steady
from partax import filter_jit
from trees import SAMPLES, Layer, array, assert_same

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose

Collect = Callable[[], None]


def test_many_calls_with_every_family(traces: TraceCounter) -> None:
    f, makers = filter_jit(lambda tree: traces.seen(tree)), list(SAMPLES.values())
    for make in makers:
        f(make())
    before = traces.count
    check_steady(lambda i: f(makers[i % len(makers)]()), calls=CALLS // 20)
    assert traces.count == before <= len(makers)


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
    for n in range(210):
        f.eval_shape(x, n)
        if n % 200 == 0:
            assert_same(f(x, n), x * n)
    collect()
    assert f.cache_info().static_keys == 100
    assert alive("PjitFunction") - jitted <= 2 * 100


@pytest.mark.slow
def test_wrappers_of_callables_that_are_gone_are_bounded(collect: Collect) -> None:
    x, caches = array(2), alive("CallCache")
    for n in range(MANY):
        filter_jit(functools.partial(lambda n, x: x + n, n)).eval_shape(x)
    collect()
    assert alive("CallCache") - caches <= 256


def _counted(traces: TraceCounter, **options: Any) -> Any:
    return filter_jit(lambda x, n: (traces.seen(x) * n, n), **options)


def test_cache_info_counts_keys_traces_hits_and_misses(traces: TraceCounter) -> None:
    f = _counted(traces)
    assert f.cache_info() == (0, 0, 0, 0, 4096, 0)
    for n, size in [(1, 2), (1, 2), (2, 2), (1, 3), (1, 3), (2, 2), (1, 2)]:
        f(array(size), n)
    info = f.cache_info()
    assert (info.static_keys, info.traces, info.hits, info.misses) == (2, 3, 4, 3)
    assert traces.count == 3


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_least_recently_used_key_goes_first(traces: TraceCounter, size: int) -> None:
    f, keys = _counted(traces, cache_size=size), list[int]()  # the latest one last
    for n in (1, 2, 1, 3, 1, 3, 2, 3, 1, 1, 4, 5, 6, 7, 2):
        before, is_new = traces.count, n not in keys
        assert_same(f(array(2), n), (array(2) * n, n))
        assert traces.count - before == is_new
        keys = [*(key for key in keys if key != n), n][-size:]
        assert (f.cache_info().static_keys, f.cache_info().max_size) == (len(keys), size)


def test_a_cache_size_that_makes_no_sense_is_an_error() -> None:
    for size in (-1, 0, "1"):
        with pytest.raises(ValueError, match="cache_size"):
            filter_jit(lambda x: x, cache_size=size)  # type: ignore[arg-type]
