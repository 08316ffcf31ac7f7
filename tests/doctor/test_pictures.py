"""Guards the promise that the pictures' figures are those of the program: each equation is in the icicle once, the
peak and the buffers of the live bytes are the walk's, and the timeline has each trace, its seconds and its cause."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import partax
from doctor_pages import arguments, diagnosis, step
from partax._doctor.examined import Examined
from partax._doctor.lines import NOWHERE, Line, stack_of
from partax._doctor.liveness import Buffer, Liveness, live_bytes
from partax._doctor.pictures.icicle import Box, icicle
from partax._doctor.pictures.live_bytes import columns, live_bytes_picture
from partax._doctor.pictures.timeline import timeline_picture
from partax._doctor.timeline import Event


def examined(function: Any = step, *args: Any) -> Examined:
    found = partax.doctor(function, *(args or arguments())).examined
    assert found is not None
    return found


def levels(root: Box) -> dict[int, list[Box]]:
    """The boxes by depth."""
    found: dict[int, list[Box]] = defaultdict(list)

    def note(box: Box, depth: int) -> None:
        found[depth].append(box)
        for it in box.below.values():
            note(it, depth + 1)

    note(root, 0)
    return found


def boxes(root: Box) -> Iterator[Box]:
    return (box for level in levels(root).values() for box in level)


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
    for depth in range(1, max(depths) + 1):
        assert sum(it.equations for it in found[depth]) == sum(it >= depth for it in depths)
    assert max(found) == max(depths)


def test_a_box_has_the_equations_of_those_below() -> None:
    for box in boxes(icicle(examined())):
        assert box.equations >= sum(it.equations for it in box.below.values()) and box.equations > 0


def test_small_lines_are_put_together_and_nothing_is_lost() -> None:
    lines = "\n".join(f"    x = x + {i}.0" for i in range(40))
    source = f"def many(x):\n    for _ in range(3000):\n        x = x * 2.0\n{lines}\n    return x"
    space: dict[str, Any] = {}
    exec(compile(source, "many.py", "exec"), space)
    program = examined(space["many"], jnp.ones(3))
    for picture, most in ((icicle(program), 800), (icicle(program, boxes=10), 10)):
        found = levels(picture)
        assert sum(it.equations for it in found[1]) == 3040
        assert sum(map(len, found.values())) <= most + 1
    (other,) = [it for it in boxes(icicle(program)) if it.text.startswith("other: ")]
    assert other.equations == 40  # each is less than a six hundredth


def test_lines_with_findings_are_outlined() -> None:
    found = diagnosis()
    assert found.examined is not None
    assert [it.severity for it in boxes(icicle(found.examined, found.findings)) if it.severity] == ["high"]
    assert not [it for it in boxes(icicle(found.examined)) if it.severity]


def test_callers_of_the_doctor_are_left_out() -> None:
    titles = "".join(it.title for it in boxes(icicle(examined())))
    assert "test_pictures.py" not in titles and "doctor_pages.py" in titles


def test_an_inner_program_stands_below_each_of_its_calls() -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        return jnp.sin(x) * 2

    def twice(x: Any) -> Any:
        x = inner(x)
        return inner(x) + 1

    found = levels(icicle(examined(twice, jnp.ones(3))))
    assert [it.equations for it in found[1]] == [3, 4]  # with the call, and the addition
    assert [it.equations for it in found[2]] == [2, 2]


def test_a_large_program_is_drawn_quickly_and_small() -> None:
    def unrolled(x: Any) -> Any:
        for _ in range(10_000):
            x = jnp.tanh(x) * 1.5 + x
        return x

    program = examined(unrolled, jnp.ones(4))
    assert len(program.equations) == 30_000
    begin = time.perf_counter()
    picture = icicle(program)
    assert time.perf_counter() - begin < 1.0  # it takes a twentieth of that
    assert len(list(boxes(picture))) < 10


def test_recursion_is_drawn_to_a_depth() -> None:
    def deeper(x: Any, n: int) -> Any:
        return x if n == 0 else jnp.sin(deeper(x, n - 1))

    found = levels(icicle(examined(lambda x: deeper(x, 200), jnp.ones(3))))
    assert found[0][0].equations == 200 and max(found) == 40


# ---- Live bytes.


def made_up(sizes: list[int]) -> Liveness:
    buffers = (
        Buffer("float32[256]", 1024, "x", NOWHERE, 0, len(sizes) - 1),
        Buffer("float32[64]", 256, "dot_general", Line("a.py", 7, "f"), 1, 1),
    )
    return Liveness(tuple(sizes), max(sizes), sizes.index(max(sizes)), buffers)


def test_the_curve_is_the_bytes() -> None:
    picture = live_bytes_picture(made_up([1024, 4096, 2048, 0]))
    heights = [1 - above for _, above in picture.curve]
    assert heights == pytest.approx([it * heights[2] for it in (0.25, 0.25, 1, 1, 0.5, 0.5, 0, 0)]) and heights[2] > 0.9
    assert [step for step, _ in picture.curve] == [0, 1, 1, 2, 2, 3, 3, 4]
    assert picture.told == "peak: 4 KiB at step 2 of 4"


def test_buffers_are_named_and_as_long_as_they_live() -> None:
    whole, short = live_bytes_picture(made_up([1024, 4096, 2048, 0])).bars
    assert (whole.text, whole.begin, whole.length) == ("1 KiB  float32[256]  x", 0, 1)
    assert short.text.startswith("256 B  float32[64]  dot_general  a.py:7") and (short.begin, short.length) == (
        0.25,
        0.25,
    )


def test_many_steps_keep_the_peak() -> None:
    sizes = [i % 7 for i in range(100_000)]
    sizes[77_777] = 1000
    assert max(size for _, size in columns(sizes)) == 1000
    assert len(columns(sizes)) <= 550
    assert [first for first, _ in columns([1, 2, 3])] == [0, 1, 2]


@pytest.mark.parametrize(("limit", "in_sight"), [(None, False), (2048, True), (3 * 4096, True), (3 * 4096 + 1, False)])
def test_the_limit_is_a_line_where_it_is_in_sight(limit: int | None, in_sight: bool) -> None:
    picture = live_bytes_picture(made_up([1024, 4096]), limit)
    assert (picture.limit is not None) == in_sight
    assert ("far above" in picture.limit_text) == (limit is not None and not in_sight)
    if limit == 2048:
        assert picture.limit is not None and 1 - picture.limit == pytest.approx(2 * (1 - picture.curve[0][1]))


def test_it_draws_the_walk_of_a_program() -> None:
    program = examined()
    liveness = live_bytes(program)
    picture = live_bytes_picture(liveness)
    assert len(picture.curve) == 2 * len(program.jaxpr.jaxpr.eqns) == 2 * len(liveness.bytes)
    assert 0 < len(picture.bars) <= min(8, len(liveness.largest))
    assert f"at step {liveness.peak_step + 1}" in picture.told


# ---- The timeline.


def event(trace: int, stage: str, begin: float, seconds: float, function: str = "f", track: int = 1) -> Event:
    return Event(function, "a.py:1", track, trace, stage, begin, seconds, f"reason {trace} <b>", "a.py:9", trace == 9)


def test_stages_are_as_long_as_their_seconds() -> None:
    events = [event(1, "trace", 5, 1), event(1, "lower", 6, 2), event(1, "compile", 8, 4), event(2, "trace", 12, 1)]
    first, second = timeline_picture(events).rows
    assert [(it.kind, it.share) for it in first.stages] == [("trace", 1 / 7), ("lower", 2 / 7), ("compile", 4 / 7)]
    assert [it.share for it in second.stages] == [1 / 7] and first.stages[2].text == "compile 4 s"


def test_each_trace_has_a_row_with_its_cause() -> None:
    of_f = [event(1, "trace", 0, 1), event(1, "compile", 1, 1), event(9, "trace", 2, 1)]
    rows = timeline_picture([*of_f, event(1, "trace", 3, 1, "g", 2)]).rows
    assert [it.name for it in rows] == ["f trace 1, 2 s", "f trace 9 failed, 1 s", "g trace 1, 1 s"]
    assert [it.because for it in rows] == [f"a.py:9: reason {trace} <b>" for trace in (1, 9, 1)]


def test_those_that_took_longest_are_shown_by_time() -> None:
    picture = timeline_picture([event(i, "trace", i, 1 + i % 2) for i in range(1, 81)])
    assert picture.traces == 80
    assert [it.name for it in picture.rows] == [f"f trace {i}{' failed' * (i == 9)}, 2 s" for i in range(1, 81, 2)]
