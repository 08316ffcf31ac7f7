"""What a sweep gives: points of a plot, each a median with its quartiles over the rounds of one interleaved run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from interleave import Effort, Loop, Timing, interleave

SECONDS = "seconds"
"""Of a call, or of what the sweep says."""
RATIO = "ratio"
"""Seconds over those of the floor in the same round."""
SHARE = "share"
"""The part of the seconds that the floor does not take in the same round."""


@dataclass(frozen=True)
class Point:
    """One form at one place of a sweep."""

    panel: str
    """What is done."""
    form: str
    """By what: a line of the plot."""
    at: float
    """Where on the line."""
    quantity: str
    low: float
    """A quarter of the rounds is below it."""
    median: float
    high: float
    """A quarter of the rounds is above it."""
    samples: int
    """How many it is the median of."""


@dataclass(frozen=True)
class Sweep:
    """What is measured at growing sizes."""

    name: str
    over: str
    """What grows."""
    places: tuple[int, ...]
    quick_places: tuple[int, ...]
    measure: Callable[[Effort, int], Sequence[Point]]
    """At one place."""
    libraries: tuple[str, ...] = ("equinox",)
    """Whose versions matter."""


def seconds(panel: str, at: float, timings: Mapping[str, Timing]) -> list[Point]:
    return [_point(panel, form, at, SECONDS, timing) for form, timing in timings.items()]


def ratios(panel: str, at: float, timings: Mapping[str, Timing], floor: str) -> list[Point]:
    """Of all forms but the floor, round by round: the forms of a round were disturbed alike."""
    return _over_floor(panel, at, timings, floor, RATIO, lambda form, floor: form / floor)


def shares(panel: str, at: float, timings: Mapping[str, Timing], floor: str) -> list[Point]:
    """Of all forms but the floor, round by round."""
    return _over_floor(panel, at, timings, floor, SHARE, lambda form, floor: 1 - floor / form)


def _over_floor(
    panel: str,
    at: float,
    timings: Mapping[str, Timing],
    floor: str,
    quantity: str,
    compare: Callable[[float, float], float],
) -> list[Point]:
    def compared(timing: Timing) -> Timing:
        return Timing(tuple(map(compare, timing.samples, timings[floor].samples)))

    return [_point(panel, form, at, quantity, compared(of)) for form, of in timings.items() if form != floor]


def _point(panel: str, form: str, at: float, quantity: str, timing: Timing) -> Point:
    low, median, high = timing.quartiles
    return Point(panel, form, at, quantity, low, median, high, len(timing.samples))


def few_rounds(effort: Effort, loops: Mapping[str, Loop]) -> dict[str, Timing]:
    """Timings where the slowest contenders take up to a second for a call."""
    return interleave(loops, rounds=effort.slow_rounds(15), sample_seconds=2e-3 if effort.quick else 2e-2)


def sizes(*powers: int, steps: Iterable[int] = (1,)) -> tuple[int, ...]:
    """Each step times ten to each power."""
    return tuple(step * 10**power for power in powers for step in steps)
