"""The live bytes along a program, with its peak, its largest buffers and the memory that there is."""

import dataclasses
import html
from collections.abc import Sequence

from partax._doctor.figure_text import bytes_text
from partax._doctor.liveness import Buffer, Liveness
from partax._doctor.pictures.svg import WIDTH, Picture, box, drawing, fitted, label, line, ticks, width_of

_LEFT, _RIGHT = 90.0, WIDTH - 12.0
_TOP, _BOTTOM = 24.0, 244.0
_COLUMNS = 550  # of which each is a step, or the most of several
_BUFFERS = 8
_BUFFER_ROW = 32.0
_LIMIT_IN_SIGHT = 3.0  # a limit of more than so many peaks would leave a flat line


def live_bytes_picture(liveness: Liveness, limit: int | None = None) -> Picture:
    """The live bytes of a program by step, with the memory that there is, where that is known."""
    steps = len(liveness.bytes)
    limit_in_sight = limit is not None and limit <= _LIMIT_IN_SIGHT * max(liveness.peak, 1)
    most = max(liveness.peak, limit if limit is not None and limit_in_sight else 0, 1) * 1.04
    parts = [*_axes(most, steps), _curve(liveness.bytes, most), *_peak(liveness, most)]
    if limit is not None and limit_in_sight:
        y = _y(limit, most)
        parts += [line(_LEFT, y, _RIGHT, y, "limit")]
        at_left = liveness.peak_step > steps / 2  # else the peak's own text would be in the way
        text_y = y - 5 if y > _TOP + 16 else y + 14
        text = f"limit: {bytes_text(limit)}"
        parts.append(label(_LEFT + 4 if at_left else _RIGHT - 4, text_y, text, "strong", end=not at_left))
    largest = _alike(liveness.largest)[:_BUFFERS]
    for i, buffers in enumerate(largest):
        parts += _bar(buffers, _BOTTOM + 36 + i * _BUFFER_ROW, steps)
    told = f"Live bytes by step: at most {bytes_text(liveness.peak)}, at step {liveness.peak_step + 1} of {steps}"
    caption = (
        "The bytes of the arrays that live at each step, which is an equation of the outermost program; below, the "
        "largest arrays that live at the peak, and how long they do. An estimate before XLA fuses anything."
    )
    if limit is not None and not limit_in_sight:
        caption += f" The limit, {bytes_text(limit)}, is far above the picture."
    return Picture("Live bytes", caption, drawing(_BOTTOM + 30 + len(largest) * _BUFFER_ROW + 6, told, parts))


def _y(size: float, most: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * size / most


def _x(step: float, steps: int) -> float:
    return _LEFT + (_RIGHT - _LEFT) * step / max(steps, 1)


def _axes(most: float, steps: int) -> list[str]:
    parts: list[str] = []
    for size in ticks(most, 4, base=2):
        y = _y(size, most)
        parts += [line(_LEFT, y, _RIGHT, y, "grid"), label(_LEFT - 8, y + 4, bytes_text(size), end=True)]
    for step in ticks(steps, 8):
        if step == int(step):
            text = f"{step:,.0f}" if step else "step 0"
            parts.append(label(_x(step, steps), _BOTTOM + 18, text, end=step > 0.97 * steps))
    return parts


def columns(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of a first step and the most bytes from there to the next pair's."""
    each = max(1, -(-len(sizes) // _COLUMNS))
    return [(i, max(sizes[i : i + each])) for i in range(0, len(sizes), each)]


def _curve(sizes: Sequence[int], most: float) -> str:
    points = [f"M{_LEFT:.1f} {_BOTTOM:.1f}"]
    pairs = columns(sizes)
    for i, (step, size) in enumerate(pairs):
        end = pairs[i + 1][0] if i + 1 < len(pairs) else len(sizes)
        y = f"{_y(size, most):.1f}"
        points.append(f"L{_x(step, len(sizes)):.1f} {y}H{_x(end, len(sizes)):.1f}")
    return f'<path d="{"".join(points)}V{_BOTTOM:.1f}Z" class="live"><title>live bytes</title></path>'


def _peak(liveness: Liveness, most: float) -> list[str]:
    steps = len(liveness.bytes)
    x, y = _x(liveness.peak_step + 0.5, steps), _y(liveness.peak, most)
    text = f"peak: {bytes_text(liveness.peak)} at step {liveness.peak_step + 1:,}"
    at_end = x + 10 + width_of(text) > _RIGHT
    return [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="peak"><title>{html.escape(text)}</title></circle>',
        label(x - 8 if at_end else x + 8, y - 8, text, "strong", end=at_end),
    ]


def _alike(largest: Sequence[Buffer]) -> list[list[Buffer]]:
    """Those together that differ in their names alone, as the parameters of layers do."""
    groups: dict[Buffer, list[Buffer]] = {}
    for buffer in largest:
        groups.setdefault(dataclasses.replace(buffer, name="", type=""), []).append(buffer)
    return list(groups.values())


def _bar(buffers: Sequence[Buffer], y: float, steps: int) -> list[str]:
    buffer = buffers[0]
    texts = [f"{len(buffers)} x {bytes_text(buffer.bytes)}" if len(buffers) > 1 else bytes_text(buffer.bytes)]
    texts += [", ".join(dict.fromkeys(it.type for it in buffers)), ", ".join(dict.fromkeys(it.name for it in buffers))]
    if buffer.line.file:
        texts += [buffer.line.place, buffer.line.source]
    title = f"{'  '.join(texts)}\nlives from step {buffer.begin + 1:,} to {buffer.end + 1:,}"
    x, end = _x(buffer.begin, steps), _x(min(buffer.end + 1, steps), steps)
    return [
        label(_LEFT, y + 10, fitted("  ".join(texts), _RIGHT - _LEFT)),
        line(_LEFT, y + 19, _RIGHT, y + 19, "grid"),
        box(x, y + 15, max(end - x, 2), 8, "buffer", title),
    ]
