"""Guards the promise that a report gives each trace its own calls, seconds, size and constants, and no other's."""

import json
import time
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import partax
from partax import filter_jit
from partax.reports import Diagnosis, Finding, FunctionReport, LoadReport, Report, TraceReport
from trees import array

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose


def test_calls_by_key_and_trace() -> None:
    @filter_jit
    def f(x: Any, n: int) -> Any:
        return x * n, n

    for n, size, calls in [(1, 2, 3), (2, 2, 4), (1, 3, 5)]:
        for _ in range(calls):
            f(array(size), n)
    report = f.report()
    assert (report.name, report.hits, report.misses) == ("f", 9, 3)
    traces = [(trace.number, trace.static, trace.calls) for trace in report.traces]
    assert traces == [(1, "n=1", 3), (2, "n=2", 4), (3, "n=1", 5)]
    assert [trace.reason.split(" (")[0] for trace in report.traces] == [
        "the first",
        "n: static int 1 -> 2",
        "x: float32[2] -> float32[3]",
    ]
    assert all(trace.site.startswith(report.defined.split(":")[0]) for trace in report.traces)


def test_seconds_are_those_of_the_function_itself() -> None:
    @filter_jit
    def slow(x: Any) -> Any:
        time.sleep(0.05)
        return jax.jit(lambda y: jnp.cos(y))(x), 1

    @filter_jit(donate="all")
    def outer(x: Any) -> Any:
        with jax.ensure_compile_time_eval():
            jnp.ones(17).reshape(17, 1).sum(axis=1)  # compiled during the trace, but not for it
        return slow(x)[0] + 1, 2

    outer(array(3))
    (trace,) = outer.report().traces
    assert trace.trace_seconds > 0.05 and trace.lower_seconds > 0 and trace.compile_seconds > 0
    assert trace.executables == 1 and trace.seconds > 0.05
    (inner,) = slow.report().traces  # which was never compiled by itself
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
    assert trace.failed and trace.compile_seconds == 0
    assert "1 failed" in str(f.report())


def test_keys_that_have_been_dropped() -> None:
    f = filter_jit(lambda x, name: (x, name), cache_size=1)
    f(array(2), "a")
    f(array(2), "b")
    assert [(trace.static, trace.calls) for trace in f.report().traces] == [("name='a'", None), ("name='b'", 1)]


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


def test_a_report_keeps_nothing(collect: Callable[[], None]) -> None:
    f = filter_jit(lambda x: (x + 1, 1))
    f(array(3))
    report = f.report()
    gone = weakref.ref(f.__wrapped__)
    del f
    collect()
    assert gone() is None and report.traces[0].number == 1


# ---- As text and as data.

HOSTILE = "<script>alert(1)</script>[bold]x[/bold]\x1b[31m\n" + "long" * 50


def report_of(text: str) -> FunctionReport:
    def trace(number: int, calls: int | None, failed: bool = False) -> TraceReport:
        return TraceReport(number, f"{text}.py:41", f"{text} -> {number}", text, calls, 0.125, 0.0625, 1.5, 2, failed)

    traces = trace(1, 1000), trace(2, None), trace(3, 7, True)
    return FunctionReport(text, f"{text}.py:12", 2000, 3, traces, (LoadReport(text, 0.5, 3.0),))


def test_the_table_of_a_report() -> None:
    head, *lines = [" ".join(line.split()) for line in str(report_of("step")).splitlines()]
    assert head == "step (step.py:12): 2,003 calls, 3 traces, 1 loaded, 5.06 s to trace and compile"
    assert "2 step - 0.1250 0.0625 1.5000 (2 x)" in lines and "trace 3 at step.py:41: step -> 3" in lines
    assert lines[-1] == "loaded at step in 0.5 s (saves 3 s)"


def test_a_report_is_printable_lines_whatever_names_it_has() -> None:
    report = Report((report_of(HOSTILE), report_of("step"), FunctionReport("f", "", None, None, ())))
    assert all(line.isprintable() for line in str(report).split("\n"))
    for record in (report, *report.functions, report.functions[0].traces[0]):
        assert repr(record).isprintable() and len(repr(record)) <= 120 and type(record).__name__ in repr(record)
    assert str(Report(())) == "no partax function has been traced"


def test_a_report_is_json() -> None:
    report = report_of("step")
    data = json.loads(report.to_json(indent=1))
    assert (data["name"], data["traces"][0]["compile_seconds"]) == ("step", 1.5)
    assert json.loads(Report((report,)).to_json()) == {"functions": [data]}


def test_the_classes_of_reports_are_public_in_one_place() -> None:
    for cls in (FunctionReport, LoadReport, Report, TraceReport, Diagnosis, Finding):
        assert cls.__module__ == "partax.reports" and not hasattr(partax, cls.__name__)
