"""Guards the promise that the pictures' figures are those of the program: each equation is in the icicle once, the
peak and the buffers of the live bytes are the walk's, and the timeline has each trace, its seconds and its cause."""

import itertools
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import pytest

import partax
from doctor_pages import arguments, step
from partax import filter_jit
from partax._doctor import page as page_module
from partax._doctor.examined import Examined
from partax._doctor.lines import stack_of
from partax._doctor.page import STAGES, Box, Event, events, icicle, page


def examined(function: Any = step, *args: Any) -> Examined:
    found = partax.doctor(function, *(args or arguments())).examined
    assert found is not None
    return found


def levels(root: Box) -> list[list[Box]]:
    """The boxes by depth."""
    found = [[root]]
    while below := [inner for box in found[-1] for inner in box.below.values()]:
        found.append(below)
    return found


def all_equations(jaxpr: Any) -> int:
    """An independent count."""
    inner = 0
    for eqn in jaxpr.eqns:
        for leaf in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda it: hasattr(it, "eqns")):
            inner += all_equations(getattr(leaf, "jaxpr", leaf)) if hasattr(leaf, "eqns") else 0
    return len(jaxpr.eqns) + inner


def test_a_level_of_the_icicle_is_all_equations_that_are_so_deep() -> None:
    program = examined()
    found = levels(icicle(program))
    total = all_equations(program.jaxpr.jaxpr)
    assert total == len(program.equations) > 50
    assert [it.equations for it in found[0]] == [total]
    depths: list[int] = []  # jax knows the lines of inner programs from the inner function on
    for eqn, parent in zip(program.equations.eqns, program.equations.parents, strict=True):
        depths.append(len(stack_of(eqn)) + (depths[parent] if parent >= 0 else 0))
    for depth, level in enumerate(found):
        assert sum(it.equations for it in level) == sum(it >= depth for it in depths)
    assert len(found) == max(depths) + 1


def event(trace: int, stage: str, begin: float, seconds: float, function: str = "f", track: int = 1) -> Event:
    return Event(function, "a.py:1", track, trace, stage, begin, seconds, f"reason {trace} <b>", "a.py:9", trace == 9)


def timeline(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> str:
    """The page of a report of `f` and `g`, which have these events."""
    monkeypatch.setattr(page_module, "events", lambda: events)
    return page((), partax.Report(tuple(partax.FunctionReport(name, "a.py:1", 0, 0, (), ()) for name in "fg")))


def test_each_trace_has_a_row_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    of_f = [event(1, "trace", 0, 1), event(1, "compile", 1, 1), event(9, "trace", 2, 1)]
    text = timeline([*of_f, event(1, "trace", 3, 1, "g", 2), event(1, "trace", 4, 1, "h", 3)], monkeypatch)
    assert re.findall(r"<b>(.+?)</b>", text) == ["f trace 1", "f trace 9 failed", "g trace 1"]
    assert text.count("a.py:9: reason 1 &lt;b&gt;") == 2 and "a.py:9: reason 9 &lt;b&gt;" in text


def test_those_that_took_longest_are_shown_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    text = timeline([event(i, "trace", i, 1 + i % 2) for i in range(10, 90)], monkeypatch)
    assert re.findall(r"<b>(.+?)</b>", text) == [f"f trace {i}" for i in range(11, 90, 2)]
    assert "40 more traces took less" in text


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
    staged.lower(jnp.ones(5), 1).compile()  # runs nothing
    found = of("staged")
    assert [(it.trace, it.stage) for it in found] == [(n, stage) for n in (1, 2, 3) for stage in STAGES][:-1]
    assert before - 0.01 <= found[0].begin and found[3].begin < between < found[4].begin
    for one, other in itertools.pairwise(found):
        assert one.begin + one.seconds <= other.begin + 0.01
    for trace, run in ((trace, found[4 * trace.number - 1 :][:1]) for trace in staged.report().traces):
        stages = [it for it in found if it.trace == trace.number and it.stage != "run"]
        assert {(it.reason, it.site) for it in stages} == {(trace.reason, trace.site)}
        assert [it.seconds for it in stages] == [trace.trace_seconds, trace.lower_seconds, trace.compile_seconds]
        assert trace.trace_seconds > 0.05
        assert all(it.begin == pytest.approx(stages[-1].begin + stages[-1].seconds) for it in run)


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
    found = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert all(type(it["pid"]) is type(it["tid"]) is int and type(it["name"]) is str for it in found)
    assert {it["ph"] for it in found} == {"X", "M"}  # whole events, and names of tracks
    (track,) = {it["tid"] for it in found if it["name"] == "compile traced"}
    (name,) = [it["args"]["name"] for it in found if it["ph"] == "M" and it["tid"] == track]
    assert name.startswith("traced (") and "test_pictures.py:" in name
    own = [it for it in found if it["ph"] == "X" and it["tid"] == track]
    for it, event in zip(own, of("traced"), strict=True):
        assert (it["cat"], it["name"]) == (event.stage, f"{event.stage} traced")
        assert (it["ts"], it["dur"]) == pytest.approx((event.begin * 1e6, event.seconds * 1e6))
        assert (it["args"]["reason"], it["args"]["trace"]) == (event.reason, event.trace)
    assert len(own) == 8 and own[4]["args"]["reason"].startswith("x: float32[2] -> float32[3]")
