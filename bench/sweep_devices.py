"""A sweep of a train step against the devices that its batch is spread over, all of them the CPU's."""

from __future__ import annotations

from collections.abc import Sequence

import distributed
from interleave import Effort
from points import Point, Sweep, seconds

STEP = "a step until it has ended"
DISPATCH = "a call until it returns"


def against_devices(effort: Effort, devices: int) -> Sequence[Point]:
    """In a process of its own, which has as many devices: bench/sharded_steps.py."""
    trained = distributed.trained(distributed.Place(1, devices, "data"), effort)
    return seconds(DISPATCH, devices, trained.dispatch) + seconds(STEP, devices, trained.steps)


DEVICES = Sweep("devices", "devices", (1, 2, 4, 8), (1, 2, 4, 8), against_devices, ("equinox", "optax"))
