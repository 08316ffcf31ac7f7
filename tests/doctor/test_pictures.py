"""Guards the promise that the pictures' figures are those of the program: each equation is in the icicle once, the
peak and the buffers of the live bytes are the walk's, and the timeline has each trace, its seconds and its cause."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from typing import Any
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import pytest

import partax
from doctor_pages import LAYERS, arguments, diagnosis, step
from partax._doctor.examined import Examined
from partax._doctor.lines import NOWHERE, Line, stack_of
from partax._doctor.liveness import Buffer, Liveness, live_bytes
from partax._doctor.pictures.icicle import icicle
from partax._doctor.pictures.live_bytes import columns, live_bytes_picture
from partax._doctor.pictures.svg import WIDTH
from partax._doctor.pictures.timeline import scale, timeline_picture
from partax._doctor.timeline import Event

SVG = ElementTree.Element


def parsed(svg: str) -> SVG:
    """Also fails where it is no XML."""
    return ElementTree.fromstring(svg)


def examined(function: Any = step, *args: Any) -> Examined:
    found = partax.doctor(function, *(args or arguments())).examined
    assert found is not None
    return found


def levels(svg: str) -> dict[int, list[tuple[float, float, int]]]:
    """Of the icicle's boxes by depth: where one begins, how wide it is, how many equations it says."""
    found: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
    for it in parsed(svg).iter("rect"):
        if "data-depth" in it.attrib:
            box = (float(it.attrib["x"]), float(it.attrib["width"]), int(it.attrib["data-equations"]))
            found[int(it.attrib["data-depth"])].append(box)
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
    found = levels(icicle(program).svg)
    total = all_equations(program.jaxpr.jaxpr)
    assert total == len(program.equations) > 50
    assert [equations for _, _, equations in found[0]] == [total]
    depths: list[int] = []  # jax knows the lines of inner programs from the inner function on
    for eqn, parent in zip(program.equations.eqns, program.equations.parents, strict=True):
        depths.append(len(stack_of(eqn)) + (depths[parent] if parent >= 0 else 0))
    for depth in range(1, max(depths) + 1):
        assert sum(equations for _, _, equations in found[depth]) == sum(it >= depth for it in depths)
    assert max(found) == max(depths)


def test_a_box_is_as_wide_as_its_equations_and_none_is_over_another() -> None:
    program = examined()
    for boxes in levels(icicle(program).svg).values():
        ends = 0.0
        for x, width, equations in sorted(boxes):
            assert x >= ends - 0.02
            assert width == pytest.approx(WIDTH * equations / len(program.equations), abs=0.7)
            ends = x + width
        assert ends <= WIDTH


def test_small_lines_are_put_together_and_nothing_is_lost() -> None:
    lines = "\n".join(f"    x = x + {i}.0" for i in range(40))
    source = f"def many(x):\n    for _ in range(3000):\n        x = x * 2.0\n{lines}\n    return x"
    space: dict[str, Any] = {}
    exec(compile(source, "many.py", "exec"), space)
    program = examined(space["many"], jnp.ones(3))
    for picture, most in ((icicle(program), 800), (icicle(program, boxes=10), 10)):
        found = levels(picture.svg)
        assert sum(equations for _, _, equations in found[1]) == 3040
        assert sum(map(len, found.values())) <= most + 1
    assert ">other: 40 equations" in icicle(program).svg  # each is half a unit wide


def test_lines_with_findings_are_outlined() -> None:
    found = diagnosis()
    assert found.examined is not None
    boxes = parsed(icicle(found.examined, found.findings).svg).iter("rect")
    (outlined,) = [it.attrib["class"] for it in boxes if "found" in it.attrib["class"]]
    assert outlined.endswith(" found high")
    assert "found" not in icicle(found.examined).svg


def test_callers_of_the_doctor_are_left_out() -> None:
    svg = icicle(examined()).svg
    assert "test_pictures.py" not in svg and "doctor_pages.py" in svg


def test_an_inner_program_stands_below_each_of_its_calls() -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        return jnp.sin(x) * 2

    def twice(x: Any) -> Any:
        x = inner(x)
        return inner(x) + 1

    found = levels(icicle(examined(twice, jnp.ones(3))).svg)
    assert [equations for _, _, equations in sorted(found[1])] == [3, 4]  # with the call, and the addition
    assert [equations for _, _, equations in sorted(found[2])] == [2, 2]


def test_a_large_program_is_drawn_quickly_and_small() -> None:
    def unrolled(x: Any) -> Any:
        for _ in range(10_000):
            x = jnp.tanh(x) * 1.5 + x
        return x

    program = examined(unrolled, jnp.ones(4))
    assert len(program.equations) == 30_000
    begin = time.perf_counter()
    svg = icicle(program).svg
    assert time.perf_counter() - begin < 1.0  # it takes a twentieth of that
    assert len(svg) < 10_000


def test_recursion_is_drawn_to_a_depth() -> None:
    def deeper(x: Any, n: int) -> Any:
        return x if n == 0 else jnp.sin(deeper(x, n - 1))

    program = examined(lambda x: deeper(x, 200), jnp.ones(3))
    found = levels(icicle(program).svg)
    assert found[0][0][2] == 200 and max(found) == 40


# ---- Live bytes.


def made_up(sizes: list[int]) -> Liveness:
    buffers = (
        Buffer("float32[256]", 1024, "x", NOWHERE, 0, len(sizes) - 1),
        Buffer("float32[64]", 256, "dot_general", Line("a.py", 7, "f"), 1, 1),
    )
    return Liveness(tuple(sizes), max(sizes), sizes.index(max(sizes)), buffers)


def curve(svg: str) -> list[tuple[float, float, float]]:
    """Begin, end and height of each step of the curve."""
    (path,) = [it.attrib["d"] for it in parsed(svg).iter("path")]
    places = [tuple(map(float, it)) for it in re.findall(r"L([\d.]+) ([\d.]+)H([\d.]+)", path)]
    return [(x, end, y) for x, y, end in places]


def test_the_curve_is_the_bytes() -> None:
    svg = live_bytes_picture(made_up([1024, 4096, 2048, 0])).svg
    steps = curve(svg)
    bottom = steps[3][2]
    heights = [bottom - y for _, _, y in steps]
    assert heights == pytest.approx([heights[1] / 4, heights[1], heights[1] / 2, 0], abs=0.11)
    widths = {round(end - x) for x, end, _ in steps}
    assert len(widths) == 1
    (peak,) = parsed(svg).iter("circle")
    assert float(peak.attrib["cy"]) == pytest.approx(steps[1][2], abs=0.06)
    assert steps[1][0] < float(peak.attrib["cx"]) < steps[1][1]
    assert "peak: 4 KiB at step 2" in svg


def test_buffers_are_named_and_as_long_as_they_live() -> None:
    svg = live_bytes_picture(made_up([1024, 4096, 2048, 0])).svg
    whole, short = [float(it.attrib["width"]) for it in parsed(svg).iter("rect")]
    assert whole == pytest.approx(4 * short, abs=0.02)
    assert "1 KiB  float32[256]  x" in svg and "256 B  float32[64]  dot_general  a.py:7" in svg


def test_many_steps_keep_the_peak() -> None:
    sizes = [i % 7 for i in range(100_000)]
    sizes[77_777] = 1000
    assert max(size for _, size in columns(sizes)) == 1000
    assert len(columns(sizes)) <= 550
    assert [first for first, _ in columns([1, 2, 3])] == [0, 1, 2]
    assert len(live_bytes_picture(made_up(sizes)).svg) < 30_000


@pytest.mark.parametrize(("limit", "in_sight"), [(None, False), (2048, True), (3 * 4096, True), (3 * 4096 + 1, False)])
def test_the_limit_is_a_line_where_it_is_in_sight(limit: int | None, in_sight: bool) -> None:
    picture = live_bytes_picture(made_up([1024, 4096]), limit)
    lines = [it for it in parsed(picture.svg).iter("line") if it.attrib["class"] == "limit"]
    assert len(lines) == in_sight
    assert ("far above" in picture.caption) == (limit is not None and not in_sight)
    if lines and limit == 2048:
        steps = curve(picture.svg)
        bottom = steps[0][2] + (steps[0][2] - steps[1][2]) / 3  # 1024 is a quarter of 4096
        assert bottom - float(lines[0].attrib["y1"]) == pytest.approx((bottom - steps[1][2]) / 2, abs=0.2)


def test_it_draws_the_walk_of_a_program() -> None:
    program = examined()
    liveness = live_bytes(program)
    svg = live_bytes_picture(liveness).svg
    assert len(curve(svg)) == len(program.jaxpr.jaxpr.eqns) == len(liveness.bytes)
    assert 0 < svg.count('class="buffer"') <= min(8, len(liveness.largest))
    assert f"at step {liveness.peak_step + 1}" in svg and LAYERS > 0


# ---- The timeline.


def event(trace: int, stage: str, begin: float, seconds: float, function: str = "f", track: int = 1) -> Event:
    return Event(function, "a.py:1", track, trace, stage, begin, seconds, f"reason {trace} <b>", "a.py:9", trace == 9)


def bars(svg: str) -> list[tuple[str, float, float, float]]:
    return [
        (it.attrib["data-stage"], float(it.attrib["data-seconds"]), float(it.attrib["x"]), float(it.attrib["width"]))
        for it in parsed(svg).iter("rect")
        if "data-stage" in it.attrib
    ]


def test_bars_are_as_long_as_their_seconds_and_begin_when_they_did() -> None:
    events = [event(1, "trace", 5, 1), event(1, "lower", 6, 2), event(1, "compile", 8, 4), event(2, "trace", 12, 1)]
    found = bars(timeline_picture(events).svg)
    assert [(stage, seconds) for stage, seconds, _, _ in found] == [(it.stage, it.seconds) for it in events]
    for (_, seconds, x, width), it in zip(found, events, strict=True):
        assert width == pytest.approx(found[0][3] * seconds, abs=0.02)
        assert x == pytest.approx(found[0][2] + (it.begin - 5) * found[0][3], abs=0.02)


def test_each_trace_has_a_row_with_its_cause() -> None:
    of_f = [event(1, "trace", 0, 1), event(1, "compile", 1, 1), event(9, "trace", 2, 1)]
    events = [*of_f, event(1, "trace", 3, 1, "g", 2)]
    svg = timeline_picture(events).svg
    assert len({it.attrib["y"] for it in parsed(svg).iter("rect") if "data-stage" in it.attrib}) == 3
    texts = [it.text or "" for it in parsed(svg).iter("text")]
    assert [it for it in texts if "trace" in it] == ["f trace 1, 2 s", "f trace 9 failed, 1 s", "g trace 1, 1 s"]
    assert [it for it in texts if "reason" in it] == [f"a.py:9: reason {trace} <b>" for trace in (1, 9, 1)]


def test_pauses_are_cut_short() -> None:
    work = [event(1, "trace", 0, 10), event(2, "trace", 10.3, 10), event(3, "trace", 1000, 10)]
    x, pauses, second = scale(work)
    assert pauses == [(20.3, 1000)]  # 0.3 s is 1% of all work
    assert x(1000) - x(20.3) < 30 < second * 979
    assert x(10.3) - x(10) == pytest.approx(0.3 * second)
    places = [x(time) for time in range(1011)]
    assert places == sorted(places) and places[0] > 0 and places[-1] < WIDTH
    many = [event(i, "trace", 1000 * i, 1) for i in range(40)]
    x, pauses, second = scale(many)
    assert len(pauses) == 39 and second * 40 > WIDTH / 2
