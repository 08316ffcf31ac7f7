"""The timeline of the process: what was traced, lowered, compiled and run, and why each trace was made."""

from collections.abc import Sequence
from typing import NamedTuple

from partax._doctor.timeline import Event
from partax._report.figure_text import seconds_text

_ROWS = 40  # traces that are shown: those that took longest


class Stage(NamedTuple):
    """A part of a row: its class, its share of the longest row, and its seconds in words."""

    kind: str
    share: float
    text: str


class Row(NamedTuple):
    """One trace: its name and seconds, its call and cause, and its stages in order."""

    name: str
    because: str
    stages: list[Stage]


class Timeline(NamedTuple):
    """Rows by time, and how many traces there are in all."""

    rows: list[Row]
    traces: int


def timeline_picture(events: Sequence[Event]) -> Timeline:
    """The events of a process: a row for each trace."""
    traces: dict[tuple[int, int], list[Event]] = {}
    for event in events:  # by time
        traces.setdefault((event.track, event.trace), []).append(event)
    seconds = {key: sum(event.seconds for event in trace) for key, trace in traces.items()}
    shown = set(sorted(traces, key=lambda key: -seconds[key])[:_ROWS])
    longest = max(seconds.values(), default=0.0) or 1.0
    rows = [_row(trace, seconds[key], longest) for key, trace in traces.items() if key in shown]
    return Timeline(rows, len(traces))


def _row(trace: Sequence[Event], seconds: float, longest: float) -> Row:
    first = trace[0]
    name = f"{first.function} trace {first.trace}{' failed' if first.failed else ''}, {seconds_text(seconds)}"
    stages = [Stage(it.stage, it.seconds / longest, f"{it.stage} {seconds_text(it.seconds)}") for it in trace]
    return Row(name, f"{first.site}: {first.reason}", stages)
