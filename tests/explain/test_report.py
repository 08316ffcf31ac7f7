"""Guards the promise that a report gives each trace its own calls, seconds, size and constants, and no other's."""

import json
import re
import time
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partax import filter_jit
from trees import array

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose

TABLE = {"big": jnp.ones((100, 10)), "unused": jnp.ones(3)}
NUMBERS = np.arange(1000.0, dtype=np.float32)


def test_calls_by_key_and_trace() -> None:
    @filter_jit
    def f(x: Any, n: int) -> Any:
        return x * n, n

    for n, size, calls in [(1, 2, 3), (2, 2, 4), (1, 3, 5)]:
        for _ in range(calls):
            f(array(size), n)
    report = f.report()
    assert (report.name, report.hits, report.misses) == ("f", 9, 3)
    assert [(key.static, key.calls) for key in report.keys] == [("n=1", 8), ("n=2", 4)]
    assert [(trace.number, trace.calls) for trace in report.traces] == [(1, 3), (2, 4), (3, 5)]
    assert [trace.reason.split(" (")[0] for trace in report.traces] == [
        "the first",
        "n: static int 1 -> 2",
        "x: float32[2] -> float32[3]",
    ]
    assert all(trace.site.startswith(report.defined.split(":")[0]) for trace in report.traces)


def test_calls_of_one_array_are_known_by_their_key_only() -> None:
    f = filter_jit(lambda x: x + 1)
    for _ in range(3):
        f(array(2))
    assert [trace.calls for trace in f.report().traces] == [3]
    f(array(3))
    assert [trace.calls for trace in f.report().traces] == [None, None]
    assert f.report().keys[0].calls == 4


def test_seconds_are_those_of_the_function_itself() -> None:
    @filter_jit
    def slow(x: Any) -> Any:
        time.sleep(0.2)
        return jax.jit(lambda y: jnp.cos(y))(x), 1

    @filter_jit(donate="all")
    def outer(x: Any) -> Any:
        with jax.ensure_compile_time_eval():
            jnp.ones(17).reshape(17, 1).sum(axis=1)  # compiled during the trace, but not for it
        return slow(x)[0] + 1, 2

    outer(array(3))
    (trace,) = outer.report().traces
    assert trace.trace_seconds > 0.2 and trace.lower_seconds > 0 and trace.compile_seconds > 0
    assert trace.executables == 1 and trace.seconds > 0.2
    (inner,) = slow.report().traces
    assert inner.trace_seconds > 0.2  # and it was never compiled by itself
    assert (inner.lower_seconds, inner.compile_seconds, inner.executables) == (0, 0, 0)
    before = outer.report()
    outer(array(3))
    assert (before.traces[0].calls, outer.report().traces[0].calls) == (1, 2)
    assert outer.report().seconds == before.seconds


def test_seconds_of_what_is_compiled_again_or_ahead_of_time(devices: list[jax.Device]) -> None:
    f = filter_jit(lambda x: (x + 1, 1))
    f.lower(array(3)).compile()
    (trace,) = f.report().traces
    assert trace.executables == 1 and trace.lower_seconds > 0 and trace.compile_seconds > 0
    f(array(3))
    f(jax.device_put(array(3), devices[1]))
    (again,) = f.report().traces
    assert again.executables == 2 and again.compile_seconds > trace.compile_seconds
    jax.vmap(f)(array(2, 3))
    assert f.report().traces[0].executables == 3


def test_a_function_that_is_only_traced_or_fails() -> None:
    @filter_jit
    def f(x: Any) -> Any:
        raise KeyError("no")

    assert filter_jit(lambda x: x).report().traces == ()
    with pytest.raises(KeyError):
        f(array(3))
    (trace,) = f.report().traces
    assert trace.failed and trace.equations is None and trace.compile_seconds == 0
    assert "1 failed" in str(f.report())


def test_equations_count_inner_programs() -> None:
    fun = lambda x: (jnp.sin(x) * 2, jax.lax.scan(lambda c, y: (c + y, None), 0.0, x)[0])
    f, jaxpr = filter_jit(fun), jax.make_jaxpr(fun)(array(3))
    f(array(3))
    assert f.report().traces[0].equations == len(re.findall(r"\S+:\S+ = ", str(jaxpr))) > len(jaxpr.eqns)


def _helper(x: Any) -> Any:
    return x + NUMBERS[: len(x)].sum() + (NUMBERS * x.sum()).sum()


def test_captured_constants_have_the_names_of_their_variables() -> None:
    weights = [array(7, 7), np.full((5, 5), 2.0, np.float32)]

    @filter_jit
    def f(x: Any) -> Any:
        return _helper(x) + TABLE["big"].sum() + (weights[0] * x.sum()).sum() + (weights[1] * x.sum()).sum(), 1

    f(array(3))
    (trace,) = f.report().traces
    found = {constant.name: (constant.type, constant.bytes) for constant in trace.constants}
    assert found["TABLE['big']"] == ("float32[100,10]", 4000)
    assert found["NUMBERS"] == ("float32[1000]", 4000)
    assert found["weights[0]"] == ("float32[7,7]", 196)
    assert found["weights[1]"] == ("float32[5,5]", 100)
    assert "unused" not in str(found)
    assert [c.bytes for c in trace.constants] == sorted((c.bytes for c in trace.constants), reverse=True)
    assert "captured TABLE['big']: float32[100,10], 3.91 KiB" in str(f.report())
    data = json.loads(f.report().to_json(indent=1))
    (stored,) = data["keys"][0]["traces"]
    assert {"name": "TABLE['big']", "type": "float32[100,10]", "bytes": 4000} in stored["constants"]
    assert stored["compile_seconds"] == trace.compile_seconds
    assert any(function == data for function in json.loads(partax.report().to_json())["functions"])
    g = filter_jit(lambda x, table: (x + table["big"].sum(), 1))
    g(array(3), TABLE)
    assert g.report().traces[0].constants == ()


def test_the_fast_path() -> None:
    fast = filter_jit(lambda x: (x + 1, 1))
    printing = filter_jit(lambda x: (jax.debug.callback(lambda v: None, x), x + 1)[1])
    ref = jax.new_ref(array(3))

    @filter_jit
    def with_ref(ref: Any, x: Any) -> Any:
        ref[...] += x
        return x + 1

    inner = filter_jit(lambda x: (x + 1, 1))
    for _ in range(2):
        fast(array(3))
        printing(array(3))
        with_ref(ref, array(3))
        jax.jit(lambda x: inner(x)[0])(array(3))
    jax.effects_barrier()
    of_fast, of_printing, of_ref, of_inner = (f.report().traces[0] for f in (fast, printing, with_ref, inner))
    assert (of_fast.fast_path, of_fast.slow_because) == (True, "")
    assert of_printing.fast_path is False and "callback" in of_printing.slow_because
    assert (of_ref.fast_path, of_ref.slow_because) == (False, "refs")
    assert of_inner.fast_path is None  # it has not run by itself


def test_keys_that_have_been_dropped() -> None:
    f = filter_jit(lambda x, name: (x, name), cache_size=1)
    f(array(2), "a")
    f(array(2), "b")
    keys = f.report().keys
    assert [(key.static, key.calls) for key in keys] == [("name='b'", 1), ("name='a'", None)]
    assert "dropped" in str(f.report())


def test_the_report_of_all_functions() -> None:
    @filter_jit
    def cheap_one(x: Any) -> Any:
        return x

    @filter_jit
    def costly_one(x: Any) -> Any:
        time.sleep(0.3)
        return x

    cheap_one(array(2))
    costly_one(array(2))
    report = partax.report()
    names = [function.name for function in report.functions]
    assert names.index("costly_one") < names.index("cheap_one")
    assert len(names) == len({id(function) for function in report.functions})
    assert "costly_one (" in str(report) and "cheap_one (" in str(report)
    del costly_one
    assert "costly_one" in [function.name for function in partax.report().functions]


def test_a_report_makes_no_trace_and_keeps_nothing(collect: Callable[[], None]) -> None:
    f = filter_jit(lambda x: (x + 1, 1))
    f(array(3))
    jax.clear_caches()
    for _ in range(2):
        report = f.report()
    assert f.cache_info().traces == 1 and report.traces[0].equations is None
    gone = weakref.ref(f.__wrapped__)
    del f
    collect()
    assert gone() is None and report.traces[0].number == 1


def test_a_name_that_partax_has_not() -> None:
    with pytest.raises(AttributeError, match="module 'partax' has no attribute 'nothing'"):
        _ = partax.nothing  # type: ignore[attr-defined]
