"""Interleaved timing: contenders take turns in one process, so that noise hits all of them alike.

Every round times each contender once, in an order that rotates and reverses from round to round;
results are medians over the rounds, and comparisons are ratios of those medians.

The garbage collector stays on, as users have it: a contender that makes garbage pays for collecting
it. Objects that exist before the timing starts (all of jax, the models) are frozen first, because a
full collection walks them for tens of milliseconds and charges whoever happens to run just then.
"""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import jax

Loop = Callable[[int], None]
"""Makes that many calls and returns when the last one has been computed."""


@dataclass(frozen=True)
class Timing:
    """Seconds per call over all rounds of one contender."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def fastest(self) -> float:
        """The least disturbed round: what to look at when a busy machine blurs the medians."""
        return min(self.samples)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """A quarter of the rounds is below the first, half of them below the second, which is the median."""
        if len(self.samples) < 2:
            return self.median, self.median, self.median
        low, middle, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, middle, high

    @property
    def spread(self) -> float:
        """Distance between the quartiles over the median: how noisy this run was."""
        low, middle, high = self.quartiles
        return (high - low) / abs(middle) if middle else 0.0

    def over(self, floor: Timing) -> float:
        """Ratio of medians."""
        return self.median / floor.median


@contextlib.contextmanager
def frozen_heap() -> Iterator[None]:
    """Collect once, then hide everything that exists from the garbage collector."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def take_turns(measures: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Timing]:
    """Call each measure (it returns seconds) once per round, in changing order."""
    names = list(measures)
    samples: dict[str, list[float]] = {name: [] for name in names}
    with frozen_heap():
        for turn in range(rounds):
            start = turn // 2 % len(names)
            order = names[start:] + names[:start]
            # Each rotation also runs backwards, so nobody always follows the same neighbour.
            for name in order if turn % 2 == 0 else reversed(order):
                samples[name].append(measures[name]())
    return {name: Timing(tuple(times)) for name, times in samples.items()}


def interleave(
    loops: Mapping[str, Loop],
    *,
    rounds: int,
    sample_seconds: float,
    calls_per_loop: int = 1,
) -> dict[str, Timing]:
    """Time each loop `rounds` times, with as many calls a sample as fit in `sample_seconds`."""

    def timed(loop: Loop, count: int) -> Callable[[], float]:
        def measure() -> float:
            loop(1)  # Untimed: bring this contender's code and data back into the caches.
            begin = time.perf_counter()
            loop(count)
            return (time.perf_counter() - begin) / (count * calls_per_loop)

        return measure

    counts = {name: _calibrate(loop, sample_seconds) for name, loop in loops.items()}
    return take_turns({name: timed(loop, counts[name]) for name, loop in loops.items()}, rounds)


def _calibrate(loop: Loop, sample_seconds: float) -> int:
    loop(3)  # Compiles, and sees outputs come back as inputs.
    fastest = math.inf
    begin = time.perf_counter()
    for _ in range(20):
        lap = time.perf_counter()
        loop(1)
        now = time.perf_counter()
        fastest = min(fastest, now - lap)
        if now - begin > sample_seconds:
            break
    return max(1, round(sample_seconds / fastest))


@dataclass(frozen=True)
class Effort:
    """How long to measure: thoroughly, or just enough to see that everything runs."""

    quick: bool

    def timings(self, loops: Mapping[str, Loop], calls_per_loop: int = 1) -> dict[str, Timing]:
        """Interleave calls that are short enough to be repeated."""
        # Shorter samples would measure how a loop begins: its first result replaces none, and costs a collection.
        rounds, sample_seconds = (11, 6e-3) if self.quick else (61, 8e-3)
        return interleave(loops, rounds=rounds, sample_seconds=sample_seconds, calls_per_loop=calls_per_loop)

    def slow_rounds(self, full: int) -> int:
        """Rounds for what takes a large part of a second each time."""
        return 5 if self.quick else full


def repeated(fn: Callable[..., Any], *args: Any, wait_for: Callable[[Any], jax.Array]) -> Loop:
    """Call `fn` on the same arguments; `wait_for` picks one computed array out of its result."""
    # Spelled-out arguments: `fn(*args)` takes a slower calling convention than users' code does.
    if len(args) == 1:
        (only,) = args

        def loop(count: int) -> None:
            out = None
            for _ in repeat(None, count):
                out = fn(only)
            wait_for(out).block_until_ready()

    elif len(args) == 2:
        first, second = args

        def loop(count: int) -> None:
            out = None
            for _ in repeat(None, count):
                out = fn(first, second)
            wait_for(out).block_until_ready()

    elif len(args) == 3:
        first, second, third = args

        def loop(count: int) -> None:
            out = None
            for _ in repeat(None, count):
                out = fn(first, second, third)
            wait_for(out).block_until_ready()

    else:
        raise ValueError(f"repeated takes 1 to 3 arguments, not {len(args)}")
    return loop


def chained_flat(fn: Callable[..., Any], state: tuple[jax.Array, ...], batch: Any) -> Loop:
    """Training on a flat tuple: each call takes the tuple that the last one returned."""

    def loop(count: int) -> None:
        carry = state
        for _ in repeat(None, count):
            carry = fn(carry, batch)
        carry[-1].block_until_ready()

    return loop


def chained(
    fn: Callable[..., Any],
    model: Any,
    opt_state: Any,
    batch: Any,
    *,
    wait_for: Callable[[Any], jax.Array],
) -> Loop:
    """Training on pytrees: each call takes the model and state that the last one returned."""

    def loop(count: int) -> None:
        new_model, new_state = model, opt_state
        for _ in repeat(None, count):
            new_model, new_state = fn(new_model, new_state, batch)
        wait_for(new_model).block_until_ready()

    return loop
