"""Counts how often Python bodies run.

It is declared pure, so that a function which counts its traces reads nothing that changes.
"""

import itertools
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import partax

_counts: Counter[int] = Counter()
_numbers = itertools.count()


@dataclass(frozen=True)
class TraceCounter:
    """Call ``tick()`` in the body, or ``seen`` with an argument, and read ``count``."""

    number: int = field(default_factory=lambda: next(_numbers))

    def tick(self) -> None:
        _counts[self.number] += 1

    def seen(self, x: Any) -> Any:
        self.tick()
        return x

    @property
    def count(self) -> int:
        return _counts[self.number]


def pause() -> None:
    """Lets other threads run."""
    time.sleep(0)


partax.declare_pure("counting")
