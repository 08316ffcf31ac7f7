"""Guards the promise that the timeline has every stage of every trace of this process, with when it began, how long it
took and why the trace was made, and that what it writes is what viewers of Chrome traces read."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import pytest

import partax
from partax import filter_jit
from partax._doctor.pictures import STAGES, Event, events


def of(function: str) -> list[Event]:
    return [event for event in events() if event.function == function]


def test_each_stage_of_each_trace_is_there() -> None:
    @filter_jit
    def staged(x: Any, n: int) -> Any:
        time.sleep(0.05)
        return jnp.sin(x) * n

    before = time.perf_counter()
    staged(jnp.ones(3), 1)
    between = time.perf_counter()
    staged(jnp.ones(4), 1)
    staged(jnp.ones(4), 1)  # a hit
    found = of("staged")
    assert [(it.trace, it.stage) for it in found] == [(n, stage) for n in (1, 2) for stage in STAGES]
    assert all(it.begin < between for it in found[:4]) and all(it.begin > between for it in found[4:])
    for one, other in itertools.pairwise(found):
        assert before - 0.01 <= one.begin and one.begin + one.seconds <= other.begin + 0.01
    assert found[0].seconds > 0.05 and all(it.seconds >= 0 for it in found)
    assert {(it.trace, it.reason, it.site) for it in found} == {
        (it.number, it.reason, it.site) for it in staged.report().traces
    }
    for trace in staged.report().traces:
        seconds = [it.seconds for it in found if it.trace == trace.number and it.stage != "run"]
        assert seconds == [trace.trace_seconds, trace.lower_seconds, trace.compile_seconds]


def test_the_run_is_that_of_the_call_which_has_compiled() -> None:
    def wait(x: Any) -> Any:
        time.sleep(0.1)
        return x

    @filter_jit
    def waits(x: Any) -> Any:
        return jax.experimental.io_callback(wait, x, x, ordered=True) + 1

    begin = time.perf_counter()
    waits(jnp.ones(3)).block_until_ready()
    end = time.perf_counter()
    (run,) = [it for it in of("waits") if it.stage == "run"]
    (compiled,) = [it for it in of("waits") if it.stage == "compile"]
    assert run.begin == pytest.approx(compiled.begin + compiled.seconds)
    assert begin < run.begin <= run.begin + run.seconds < end
    waits.lower(jnp.ones(4)).compile()  # runs nothing
    assert [it.stage for it in of("waits")].count("run") == 1


def test_traces_inside_of_others_and_failed_ones() -> None:
    @filter_jit
    def inside(x: Any) -> Any:
        time.sleep(0.02)
        return x + 1, 0

    @filter_jit
    def around(x: Any) -> Any:
        return inside(x)[0] * 2, 0

    @filter_jit
    def failing(x: Any) -> Any:
        time.sleep(0.02)
        raise ValueError("no")

    around(jnp.ones(3))
    with pytest.raises(ValueError, match="no"):
        failing(jnp.ones(3))
    (inner,) = of("inside")
    outer = of("around")[0]
    assert (inner.stage, outer.stage) == ("trace", "trace")
    assert outer.begin - 0.01 <= inner.begin and inner.begin + inner.seconds <= outer.begin + outer.seconds + 0.01
    (failed,) = of("failing")
    assert failed.failed and failed.stage == "trace" and failed.seconds > 0.02


def test_what_is_compiled_again_is_there_each_time(devices: list[Any]) -> None:
    @filter_jit
    def placed(x: Any) -> Any:
        return x * 3

    for device in devices[:3]:
        placed(jax.device_put(jnp.ones(3), device))
    found = of("placed")
    assert [it.stage for it in found].count("compile") == [it.stage for it in found].count("run") == 3
    assert {it.trace for it in found} == {1}


def test_the_file_is_one_that_viewers_read(tmp_path: Path) -> None:
    @filter_jit
    def traced(x: Any) -> Any:
        return x - 1

    traced(jnp.ones(2))
    traced(jnp.ones(3))
    partax.doctor(traced, jnp.ones(2)).chrome_trace(tmp_path / "trace.json")
    assert os.listdir(tmp_path) == ["trace.json"]
    data = json.loads((tmp_path / "trace.json").read_text())
    found = data["traceEvents"]
    assert all(type(it["pid"]) is type(it["tid"]) is int and type(it["name"]) is str for it in found)
    assert {it["ph"] for it in found} == {"X", "M"}  # whole events, and names of tracks
    (track,) = {it["tid"] for it in found if it["name"] == "compile traced"}
    (name,) = [it["args"]["name"] for it in found if it["ph"] == "M" and it["tid"] == track]
    assert name.startswith("traced (") and "test_timeline.py:" in name
    own = [it for it in found if it["ph"] == "X" and it["tid"] == track]
    expected = of("traced")
    assert len(own) == len(expected) == 8
    for it, event in zip(own, expected, strict=True):
        assert it["cat"] == event.stage and it["name"] == f"{event.stage} traced"
        assert it["ts"] == pytest.approx(event.begin * 1e6) and it["dur"] == pytest.approx(event.seconds * 1e6)
        assert it["dur"] >= 0
        assert it["args"]["reason"] == event.reason and it["args"]["trace"] == event.trace
    assert own[4]["args"]["reason"].startswith("x: float32[2] -> float32[3]")
