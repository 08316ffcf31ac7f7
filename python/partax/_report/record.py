"""One trace: what it depended on, and what it cost."""

import time
import weakref
from collections.abc import Iterator
from typing import Any

from partax._pytree.call_site import call_site
from partax._report.part import Part
from partax._report.snapshot import Snapshot


class Record:
    """One trace: what it depended on, and what it cost."""

    def __init__(self, history: Any, number: int, snapshot: Snapshot, epoch: int):
        self._history = weakref.ref(history)
        self.number = number  # counts the traces of its function, from 1
        self.snapshot = snapshot
        self.epoch = epoch
        self.site = call_site()
        self.reason = ""
        self.failed = False
        self.measured = False  # whether jax has told how long the trace took
        self.tracked = True
        self.compiled = 0  # how often
        self.seconds = {"trace": 0.0, "lower": 0.0, "compile": 0.0}
        # What jax has told of it, in order: the stage, when it began (of `time.perf_counter`) and its seconds. After
        # `compile` comes `run`, until the call returned.
        self.stages: list[tuple[str, float, float]] = []
        self.places: list[Snapshot] = []  # of its further executables
        self.started = time.perf_counter()

    def arrays(self) -> Iterator[tuple[str, Part]]:
        """The arrays that the trace was made for, each with its path."""
        return ((path, part) for path, part in self.snapshot.pairs() if part.key[0] == "array")

    @property
    def history(self) -> Any:
        """The `History` that it is one of; None if that is gone."""
        return self._history()
