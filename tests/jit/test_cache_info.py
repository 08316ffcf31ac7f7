"""The cache of a wrapper is bounded, least recently used first, and tells what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import pytest

from conftest import TraceCounter
from partax import filter_jit
from trees import array, assert_same

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


def test_clear_cache_traces_again(traces: TraceCounter) -> None:
    f = _counted(traces)
    for _ in range(2):
        f(array(2), 1)
        f(array(2), 2)
    assert traces.count == 2
    f.clear_cache()
    assert f.cache_info().static_keys == 0
    assert_same(f(array(2), 1), (array(2), 1))
    assert traces.count == 3 and f.cache_info().static_keys == 1


def _cell(made: Any, value: int) -> None:
    dict(zip(made.__code__.co_freevars, made.__closure__, strict=True))["n"].cell_contents = value


def _default(made: Any, value: int) -> None:
    made.__defaults__ = (value,)


def _attribute(made: Any, value: int) -> None:
    made.n = value


@pytest.mark.parametrize("change", [_cell, _default, _attribute])
def test_clear_cache_drops_the_traces_of_earlier_states_too(
    traces: TraceCounter, change: Callable[[Any, int], None]
) -> None:
    n = 1

    def made(x: jax.Array, k: int = 1) -> jax.Array:
        traces.tick()
        return (x + 1) * n * k * getattr(made, "n", 1)

    f, other, kept = filter_jit(made), filter_jit(made), filter_jit(made, donate="warn")
    for value in (1, 2):
        change(made, value)
        assert_same(f(array(2)), (array(2) + 1) * value)
        assert_same(kept(array(2)), (array(2) + 1) * value)
    assert traces.count == 4
    f.clear_cache()
    assert other.cache_info().traces == 0
    for value in (1, 2):
        change(made, value)
        other(array(2)), kept(array(2))
    assert traces.count == 6


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


def test_a_recursive_function_may_call_its_own_wrapper(traces: TraceCounter) -> None:
    @filter_jit(cache_size=2)
    def f(x: jax.Array, n: int) -> jax.Array:
        traces.tick()
        return x if n == 0 else f(x + 1, n - 1)

    assert_same(f(array(2), 6), array(2, start=6))
    assert f.cache_info().static_keys <= 2
    assert_same(f(array(2), 6), array(2, start=6))
