"""Sweeps below the floor: calls with bound arrays against their number, and steps against how many run in one call."""

from __future__ import annotations

from collections.abc import Sequence

import bound
import steps
from interleave import Effort
from points import Point, Sweep, few_rounds, ratios, seconds, sizes
from workloads import FLOOR

CALL = "a call with bound arrays"
DEEP, DIGITS = "Adam, 64 layers", "Adam, digits"
MANY = 3_000
"""From so many arrays on a call takes milliseconds."""


def against_arrays(effort: Effort, count: int) -> Sequence[Point]:
    """All arrays are bound but one, and all of them are summed up."""
    loops = bound.loops(count)
    timings = few_rounds(effort, loops) if count >= MANY else effort.timings(loops)
    return seconds(CALL, count, timings) + ratios(CALL, count, timings, FLOOR)


BOUND = Sweep("bound", "arrays", sizes(0, 1, 2, 3, steps=(1, 3)), sizes(0, 1, 2), against_arrays)


def against_size(effort: Effort, size: int) -> Sequence[Point]:
    """64 steps of a training loop, so many of them in one call."""
    found: list[Point] = []
    for panel, make in ((DEEP, steps.deep), (DIGITS, steps.digits)):
        loops = make(size)
        timings = effort.timings({form: loops[form] for form in (FLOOR, steps.STEPS)}, calls_per_loop=steps.SIZE)
        found += seconds(panel, size, timings) + ratios(panel, size, timings, FLOOR)
    return found


STEPS = Sweep("steps", "steps in a call", (1, 2, 4, 8, 16, 32, 64), (1, 8, 32), against_size, ("equinox", "optax"))
