"""Guards the promise that the cache of a wrapper is bounded, least recently used first, and tells what it holds:
thousands of keys leave nothing behind but the latest, and other functions keep their traces."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import jax
import pytest

from conftest import TraceCounter
from growth import Witness
from partax import filter_jit
from trees import array, assert_same

Collect = Callable[[], None]
MANY = 400


def alive(name: str) -> int:
    """How many objects there are whose type has this name."""
    return sum(type(obj).__name__ == name for obj in gc.get_objects())


def adding(n: Any) -> Any:
    return lambda x: x + n


@pytest.fixture
def bystander(traces: TraceCounter) -> Any:
    @filter_jit
    def f(x: jax.Array) -> jax.Array:
        traces.tick()
        return x + 1

    f(array(2))
    yield f
    assert_same(f(array(2)), array(2) + 1)
    assert traces.count == 1


@pytest.mark.filterwarnings("ignore::partax.RetraceWarning")
def test_static_keys_of_one_wrapper_are_bounded(bystander: Any, collect: Collect) -> None:
    x, jitted = array(2), alive("PjitFunction")
    f = filter_jit(lambda x, n: x * n, cache_size=100)
    for n in range(MANY):
        f.eval_shape(x, n)
        if n % 200 == 0:
            assert_same(f(x, n), x * n)
    collect()
    assert f.cache_info().static_keys == 100
    assert alive("PjitFunction") - jitted <= 100
    before = f.cache_info().traces
    f.eval_shape(x, MANY - 1)
    assert f.cache_info().traces == before


def test_wrappers_of_callables_that_are_gone_are_bounded(collect: Collect) -> None:
    x, caches = array(2), alive("CallCache")
    for n in range(MANY):
        f = filter_jit(adding(n))
        f.eval_shape(x)
        if n % 200 == 0:
            assert_same(f(x), x + n)
    del f
    collect()
    assert alive("CallCache") - caches <= 256
    again = filter_jit(adding(MANY - 1))
    assert again.cache_info().traces == 1


def test_a_cache_that_waits_keeps_no_result(collect: Collect) -> None:
    witness = Witness()

    def call(n: int, held: Witness) -> None:
        filter_jit(lambda x: (x, n, [Witness()]))(array(2))
        filter_jit(lambda x, w: (x, n, w))(array(2), held)

    for n in range(3):
        call(n, witness)
    ref = weakref.ref(witness)
    del witness
    collect()
    assert ref() is None
    assert alive("Witness") == 0


def test_recursive_functions_and_their_wrappers_die(collect: Collect) -> None:
    def make() -> list[weakref.ref[Any]]:
        witness = Witness()

        def even(x: Any, n: int = 3) -> Any:
            return (x, witness)[0] if n == 0 else odd(x, n - 1)

        def odd(x: Any, n: int = 3) -> Any:
            return even(x, max(0, n - 1))

        step = filter_jit(lambda fun, x: fun(x))
        for _ in range(2):
            step(even, array(2))
            step(filter_jit(odd), array(2))
            filter_jit(even)(array(2))
        return [weakref.ref(even), weakref.ref(odd), weakref.ref(witness), weakref.ref(step)]

    refs = make()
    collect()
    assert [ref() for ref in refs] == [None] * 4


pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose


def _counted(traces: TraceCounter, **options: Any) -> Any:
    @filter_jit(**options)
    def f(x: jax.Array, n: int) -> tuple[jax.Array, int]:
        traces.tick()
        return x * n, n

    return f


def test_cache_info_counts_keys_traces_hits_and_misses(traces: TraceCounter) -> None:
    f = _counted(traces)
    assert f.cache_info() == (0, 0, 0, 0, 4096)
    for n, size in [(1, 2), (1, 2), (2, 2), (1, 3), (1, 3), (2, 2), (1, 2)]:
        f(array(size), n)
    info = f.cache_info()
    assert (info.static_keys, info.traces, info.hits, info.misses) == (2, 3, 4, 3)
    assert traces.count == 3


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize(
    "calls", [(1, 2, 1, 3, 1, 3, 2, 3, 1), (1, 2, 1, 1, 1, 2, 1, 3, 1, 1), (1, 1, 2, 2, 1), range(20)], ids=str
)
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


def test_jax_clear_caches_only_costs_a_trace(traces: TraceCounter) -> None:
    f = _counted(traces)
    f(array(2), 2)
    jax.clear_caches()
    assert_same(f(array(2), 2), (array(2) * 2, 2))
    assert traces.count == 2


def test_clear_cache_drops_the_traces_of_earlier_states_too(traces: TraceCounter) -> None:
    n = 1

    def made(x: jax.Array) -> jax.Array:
        traces.tick()
        return (x + 1) * n

    f, other, kept = filter_jit(made), filter_jit(made), filter_jit(made, donate="warn")

    def call() -> None:
        nonlocal n
        for n in (1, 2):
            assert_same(f(array(2)), (array(2) + 1) * n)
            assert_same(kept(array(2)), (array(2) + 1) * n)

    call()
    assert traces.count == 4
    f.clear_cache()
    assert other.cache_info().traces == 0
    call()
    assert traces.count == 6
