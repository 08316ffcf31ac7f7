"""The live bytes along a program, with its peak, its largest buffers and the memory that there is."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from partax._doctor.liveness import Buffer, Liveness
from partax._report.figure_text import bytes_text

_COLUMNS = 550  # of which each is a step, or the most of several
_BUFFERS = 8
_LIMIT_IN_SIGHT = 3.0  # a limit of more than so many peaks would leave a flat line


class Bar(NamedTuple):
    """Buffers that are alike: what they are, and from which part of the program on they live for how large a part."""

    text: str
    title: str
    begin: float
    length: float


class LiveBytes(NamedTuple):
    """The picture.

    Attributes:
      told: the peak in words.
      curve: corners of the curve: the step, and which share of the picture's height is above it.
      steps: how many there are.
      limit: which share of the height is above the memory that there is; None where that is out of sight.
      limit_text: the same in words; empty where nobody knows.
      bars: the largest buffers.
    """

    told: str
    curve: list[tuple[int, float]]
    steps: int
    limit: float | None
    limit_text: str
    bars: list[Bar]


def live_bytes_picture(liveness: Liveness, limit: int | None = None) -> LiveBytes:
    """The live bytes of a program by step, with the memory that there is, where that is known."""
    steps, peak = len(liveness.bytes), liveness.peak
    in_sight = limit is not None and limit <= _LIMIT_IN_SIGHT * max(peak, 1)
    most = max(peak, limit or 0 if in_sight else 0, 1) * 1.04
    curve: list[tuple[int, float]] = []
    pairs = columns(liveness.bytes)
    for (step, size), (end, _) in zip(pairs, [*pairs[1:], (steps, 0)], strict=True):
        curve += [(step, 1 - size / most), (end, 1 - size / most)]
    limit_text = f"limit: {bytes_text(limit)}" if limit is not None else ""
    return LiveBytes(
        f"peak: {bytes_text(peak)} at step {liveness.peak_step + 1:,} of {steps:,}",
        curve,
        steps,
        1 - limit / most if limit is not None and in_sight else None,
        limit_text if in_sight or not limit_text else f"{limit_text}, far above the picture",
        [_bar(it, steps) for it in _alike(liveness.largest)[:_BUFFERS]],
    )


def columns(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of a first step and the most bytes from there to the next pair's."""
    each = max(1, -(-len(sizes) // _COLUMNS))
    return [(i, max(sizes[i : i + each])) for i in range(0, len(sizes), each)]


def _alike(largest: Sequence[Buffer]) -> list[list[Buffer]]:
    """Those together that differ in their names alone, as the parameters of layers do."""
    groups: dict[Buffer, list[Buffer]] = {}
    for buffer in largest:
        groups.setdefault(dataclasses.replace(buffer, name="", type=""), []).append(buffer)
    return list(groups.values())


def _bar(buffers: Sequence[Buffer], steps: int) -> Bar:
    buffer = buffers[0]
    texts = [f"{len(buffers)} x {bytes_text(buffer.bytes)}" if len(buffers) > 1 else bytes_text(buffer.bytes)]
    texts += [", ".join(dict.fromkeys(it.type for it in buffers)), ", ".join(dict.fromkeys(it.name for it in buffers))]
    if buffer.line.file:
        texts += [buffer.line.place, buffer.line.source]
    end, text = min(buffer.end + 1, steps), "  ".join(texts)
    title = f"{text}\nlives from step {buffer.begin + 1:,} to {end:,}"
    return Bar(text, title, buffer.begin / max(steps, 1), (end - buffer.begin) / max(steps, 1))
