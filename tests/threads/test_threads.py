"""Guards threads: whatever they do at one moment, results are right, each key is traced once, and none hangs.

Python may switch threads after every instruction here, and a test that takes minutes is ended with all stacks.
"""

import functools
import gc
import os
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest

import partax
from at_once import HANGS_AFTER, all_right, assert_equal, at_once, switching, together
from conftest import TraceCounter
from counting import pause
from partax import filter_jit
from trees import array

THREADS = 8


@pytest.fixture(autouse=True)
def _switching() -> Iterator[None]:
    with switching():
        yield


def plain(traces: TraceCounter) -> Callable[..., Any]:
    def f(x: jax.Array, n: int = 3) -> Any:
        traces.tick()
        pause()
        return x * n

    return f


MAKERS: dict[str, Callable[[TraceCounter], Callable[[jax.Array], Any]]] = {
    "one wrapper": lambda traces: filter_jit(plain(traces)),
    "donating": lambda traces: filter_jit(plain(traces), donate="all"),
    "out_shardings": lambda traces: filter_jit(plain(traces), out_shardings=array(3).sharding),
    "a wrapper for each call": lambda traces: lambda x, f=plain(traces): filter_jit(f)(x),  # noqa: B008
    "a function for each call": lambda traces: lambda x: filter_jit(plain(traces))(x),
    "a function in the arguments": lambda traces: lambda x: applied(lambda x: plain(traces)(x), x),
    "the smallest cache": lambda traces: filter_jit(plain(traces), cache_size=1),
}
applied = filter_jit(lambda g, x: g(x))


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_threads_that_miss_at_the_same_moment_trace_once(make: Callable[[TraceCounter], Any]) -> None:
    for _ in range(2):
        traces = TraceCounter()
        call = make(traces)
        results = at_once(lambda _, call=call: call(array(3)), THREADS)
        all_right(results)
        for result in results:
            assert_equal(result, array(3) * 3)
        assert traces.count == 1


def test_shapes_of_one_key_are_traced_at_once() -> None:
    both = threading.Barrier(2)

    @filter_jit(donate="all")
    def f(x: jax.Array) -> jax.Array:
        both.wait(60)  # breaks if one trace has to wait for the other
        return x + 1

    results = together(lambda: f(array(2)), lambda: f(array(3)))
    all_right(results)
    for result, size in zip(results, (2, 3), strict=True):
        assert_equal(result, array(size) + 1)


def test_what_one_thread_traces_as_returned_another_does_not_donate() -> None:
    @filter_jit(donate="all")
    def f(x: jax.Array, y: jax.Array) -> Any:
        pause()
        return (x, y * 2) if x.shape[0] % 2 else (x + 1, y * 2)

    def work(size: int) -> None:
        x_or_next, doubled = f(array(size), array(size))
        assert_equal(x_or_next, array(size) + (size + 1) % 2)
        assert_equal(doubled, array(size) * 2)

    for _ in range(2):
        all_right(together(*(functools.partial(work, size) for size in (2, 3) * 2)))
        all_right(together(*(functools.partial(work, size) for size in (2, 3) * 2)))
        f.clear_cache()


@pytest.mark.parametrize("donate", ["none", "all"])
def test_when_a_trace_raises_the_threads_that_waited_trace_for_themselves(donate: str, traces: TraceCounter) -> None:
    @filter_jit(donate=donate)
    def f(x: jax.Array) -> jax.Array:
        traces.tick()
        first = traces.count == 1
        pause()
        if first:
            raise ZeroDivisionError
        return x + 1

    results = at_once(lambda _: f(array(3)), THREADS)
    right = [result for result in results if not isinstance(result, ZeroDivisionError)]
    assert len(right) == THREADS - 1
    f(array(3))  # one that failed is dropped when nobody traces it, and so may be traced once more
    before = traces.count
    for result in (*right, f(array(3))):
        assert_equal(result, array(3) + 1)
    assert traces.count == before


@pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # of a third number, where it comes before the others
@pytest.mark.parametrize("donate", ["none", "all"])
def test_functions_that_call_each_other(donate: str) -> None:
    @filter_jit(donate=donate)
    def even(x: jax.Array, n: int) -> jax.Array:
        pause()
        return x if n == 0 else odd(x, n - 1) + 1

    @filter_jit(donate=donate)
    def odd(x: jax.Array, n: int) -> jax.Array:
        pause()
        return x if n == 0 else even(x, n - 1) + 1

    calls = [(f, n) for f in (even, odd) for n in (1, 2, 3)]
    results = together(*(functools.partial(lambda f, n: f(array(2), n), f, n) for f, n in calls))
    all_right(results)
    for result, (_, n) in zip(results, calls, strict=True):
        assert_equal(result, array(2) + n)


def test_max_traces_is_never_exceeded() -> None:
    traces = TraceCounter()
    lock = threading.Lock()

    @filter_jit(max_traces=3)
    def f(x: jax.Array) -> jax.Array:
        with lock:
            traces.tick()
        pause()
        return x + 1

    results = together(*(functools.partial(f, array(size)) for size in range(1, THREADS + 1)))
    refused = [result for result in results if isinstance(result, BaseException)]
    assert all(isinstance(error, partax.RetraceError) for error in refused)
    assert (traces.count, len(refused)) == (3, THREADS - 3)


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python is not a free-threaded build")
def test_importing_the_module_leaves_the_gil_off() -> None:
    code = "import sys, partax, partax._core; sys.exit(sys._is_gil_enabled())"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, timeout=120).returncode == 0


# ---- One thread changes, clears or drops what another is calling with.


class Config:
    """A static value that only the key's trace may keep alive."""


@pytest.mark.parametrize("disturb", ["clear_cache", "another cache size", "other wrappers", "collect"])
def test_the_cache_is_disturbed_while_a_call_is_in_jax(disturb: str) -> None:
    tracing, disturbed = threading.Event(), threading.Event()

    @functools.partial(filter_jit, cache_size=1)
    def wrapped(x: jax.Array, config: Any, n: int) -> Any:
        tracing.set()
        assert disturbed.wait(60)
        return {"x": x + n, "n": n, "config": config}

    def disturb_cache() -> None:
        assert tracing.wait(60)
        match disturb:
            case "clear_cache":
                wrapped.clear_cache()
            case "another cache size":
                filter_jit(wrapped.__wrapped__, cache_size=1).cache_info()
            case "other wrappers":
                for i in range(3):
                    filter_jit(lambda x, i=i: x + i)(array(2))
            case _:
                gc.collect()
        disturbed.set()

    result, _ = together(lambda: wrapped(array(2), Config(), 7), disturb_cache)
    assert_equal(result["x"], array(2) + 7)
    assert result["n"] == 7 and type(result["config"]) is Config


@pytest.mark.parametrize("wraps", ["itself", "an argument"])
def test_a_callable_that_another_thread_changes_while_it_is_traced_counts_by_identity(wraps: str) -> None:
    factors, read, changed = [2], threading.Event(), threading.Event()

    def f(x: jax.Array) -> jax.Array:
        factor = factors[0]
        read.set()
        assert changed.wait(HANGS_AFTER)
        return x * factor

    def change() -> None:
        assert read.wait(HANGS_AFTER)
        factors[0] = 3
        changed.set()

    wrapped = filter_jit(f) if wraps == "itself" else functools.partial(filter_jit(lambda g, x: g(x)), f)
    result, _ = together(lambda: wrapped(array(2)), change)
    assert_equal(result, array(2) * 2)
    for factors[0] in (3, 2, 5):  # as in jax.jit, a callable that counts by identity has one trace
        assert_equal(wrapped(array(2)), array(2) * 2)
    factors[0] = 3
    assert_equal(wrapped(array(5)), array(5) * 3)
