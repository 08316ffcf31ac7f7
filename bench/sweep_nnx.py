"""A sweep of calls in Flax nnx's own style, which update their arguments in place, against the layers of the model."""

from __future__ import annotations

from collections.abc import Sequence

import nnx
from interleave import Effort
from points import Point, Sweep, ratios, seconds
from workloads import FLOOR

NOTHING = "a call that does nothing"
TRAINING = "an Adam step in place"


def against_layers(effort: Effort, depth: int) -> Sequence[Point]:
    """The forms are those of bench/nnx.py."""
    found: list[Point] = []
    for panel, work in ((NOTHING, nnx.idle(depth)), (TRAINING, nnx.training(depth))):
        timings = effort.timings(nnx.loops_of(work))
        found += seconds(panel, depth, timings) + ratios(panel, depth, timings, FLOOR)
    return found


NNX = Sweep("nnx", "layers", (1, 2, 4, 8, 16, 32, 64), (1, 4, 16), against_layers, ("flax", "optax"))
