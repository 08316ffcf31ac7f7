"""Counts how often Python bodies run.

It is registered as pure, so that a function which counts its traces reads nothing that changes.
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
class _Numbered:
    number: int = field(default_factory=lambda: next(_numbers))


class TraceCounter(_Numbered):
    """Counts how often a Python body runs: call ``tick()`` in the body, or ``seen`` of an argument; read ``count``."""

    def tick(self) -> None:
        _counts[self.number] += 1

    def seen(self, x: Any) -> Any:
        self.tick()
        return x

    @property
    def count(self) -> int:
        return _counts[self.number]

    @count.setter
    def count(self, count: int) -> None:
        _counts[self.number] = count


SEEN = TraceCounter()


def seen(x: Any) -> Any:
    """Counts a run of the body that it is in, in `SEEN`; gives its argument."""
    return SEEN.seen(x)


def pause() -> None:
    """Lets other threads run."""
    time.sleep(0)


partax.declare_pure("counting")
