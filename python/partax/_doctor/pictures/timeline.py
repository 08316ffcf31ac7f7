"""The timeline of the process: what was traced, lowered, compiled and run, and why each trace was made."""

import itertools
from collections.abc import Callable, Sequence

from partax._doctor.figure_text import seconds_text
from partax._doctor.pictures.svg import WIDTH, Picture, box, drawing, fitted, label, line, ticks, width_of
from partax._doctor.timeline import LOAD, STAGES, Event

_LEFT, _RIGHT = 8.0, WIDTH - 8.0
_ROW = 40.0
_TOP = 24.0
_ROWS = 40  # traces that are shown: those that took longest
_IDLE = 0.04  # a pause of more than this share of all work is cut short
_PAUSE = 26.0  # to this width, or less where there are many
_PAUSES = 0.3  # the share of the picture that all may take

Trace = tuple[Event, ...]  # the events of one trace, by time


def timeline_picture(events: Sequence[Event]) -> Picture:
    """The events of a process: a row for each trace."""
    every = traces(events)
    costly = sorted(every, key=lambda it: -sum(event.seconds for event in it))[:_ROWS]
    chosen = set(costly)
    shown = [trace for trace in every if trace in chosen]
    caption = (
        "A row for each trace: where it was called, why it was made, how long jax traced, lowered and compiled, and "
        "how long that call then ran until it returned. Pauses, in which the program did other things, are cut short."
    )
    if len(shown) < len(every):
        caption += f" The {_ROWS} of {len(every):,} traces that took longest are shown."
    x, pauses, second = scale([event for trace in shown for event in trace])
    height = _TOP + len(shown) * _ROW + 4
    parts: list[str] = []
    for begin, end in pauses:
        title = f"a pause of {seconds_text(end - begin)}"
        parts.append(box(x(begin), _TOP - 4, x(end) - x(begin), height - _TOP, "pause", title))
    parts += _ruler(second)
    for i, trace in enumerate(shown):
        parts += _row(trace, _TOP + i * _ROW, x)
    told = f"{len(shown)} traces of {len({event.function for trace in shown for event in trace})} functions by time"
    legend = [(stage, stage) for stage in STAGES]
    if any(event.stage == LOAD for trace in shown for event in trace):
        legend.append((LOAD, LOAD))
    if pauses:
        legend.append(("pause", "a pause"))
    return Picture("Timeline of this process", caption, drawing(height, told, parts), tuple(legend))


def traces(events: Sequence[Event]) -> list[Trace]:
    """The events by trace, those of one function's each, by time."""
    grouped: dict[tuple[int, int], list[Event]] = {}
    for event in sorted(events, key=lambda it: it.begin):
        grouped.setdefault((event.track, event.trace), []).append(event)
    return [tuple(group) for group in grouped.values()]


def scale(events: Sequence[Event]) -> tuple[Callable[[float], float], list[tuple[float, float]], float]:
    """Where in the picture a time is, the pauses that are cut short, and how wide a second is."""
    busy: list[tuple[float, float]] = []
    for event in sorted(events, key=lambda it: it.begin):
        end = event.begin + event.seconds
        if busy and event.begin <= busy[-1][1]:
            busy[-1] = (busy[-1][0], max(busy[-1][1], end))
        else:
            busy.append((event.begin, end))
    work = sum(end - begin for begin, end in busy)
    gaps = [(one[1], other[0]) for one, other in itertools.pairwise(busy)]
    pauses = [(begin, end) for begin, end in gaps if end - begin > _IDLE * work]
    first, last = (busy[0][0], busy[-1][1]) if busy else (0.0, 0.0)
    shown = last - first - sum(end - begin for begin, end in pauses)
    wide = min(_PAUSE, _PAUSES * (_RIGHT - _LEFT) / max(len(pauses), 1))
    second = (_RIGHT - _LEFT - wide * len(pauses)) / shown if shown > 0 else 0.0

    def x(time: float) -> float:
        place = _LEFT + (time - first) * second
        for begin, end in pauses:
            passed = min(end, time) - begin
            if passed > 0:
                place += wide * passed / (end - begin) - passed * second
        return place

    return x, pauses, second


def _ruler(second: float) -> list[str]:
    """How wide a round time is."""
    if second <= 0:
        return []
    length = ticks((_RIGHT - _LEFT) / second, 6)[1]
    end = _LEFT + length * second
    return [
        line(_LEFT, 10, end, 10, "axis"),
        line(_LEFT, 6, _LEFT, 14, "axis"),
        line(end, 6, end, 14, "axis"),
        label(end + 8, 14, f"this long is {seconds_text(length)}"),
    ]


def _row(trace: Trace, y: float, x: Callable[[float], float]) -> list[str]:
    first = trace[0]
    total = seconds_text(sum(event.seconds for event in trace))
    name = f"{first.function} trace {first.trace}{' failed' if first.failed else ''}, {total}"
    because = f"{first.site}: {first.reason}"
    parts = [label(_LEFT, y + 12, name, "strong")]
    at = _LEFT + width_of(name) + 14
    parts.append(label(at, y + 12, fitted(because, _RIGHT - at)))
    parts.append(line(_LEFT, y + 25, _RIGHT, y + 25, "grid"))
    for event in trace:
        begin, width = x(event.begin), x(event.begin + event.seconds) - x(event.begin)
        title = f"{event.stage} {event.function}, trace {event.trace}: {seconds_text(event.seconds)}\n{because}"
        data = f'data-stage="{event.stage}" data-seconds="{event.seconds:.6f}"'
        parts.append(box(begin, y + 19, max(width, 1.5), 12, event.stage, title, data))
    return parts
