"""Finds what a script does outside of programs: loops where jit was forgotten, or that wait for values."""

import linecache
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from types import CodeType
from typing import NamedTuple

from partax._doctor.diagnosis import Diagnosis
from partax._doctor.figures import seconds_text
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.lines import USERS, Line, loops_around, rank
from partax._explain.table import counted
from partax._jax.watched import FETCH, WAIT, watch_arrays, watch_operations

# A dispatch takes 10 to 100 us. A loop around a compiled step makes keys, slices batches and sums losses by up to four
# sorts of operations; a model that is not compiled has a dozen, its gradient several, a small function five, and an
# average of a model's arrays three, for each of them.
_ENOUGH = (8, 800), (5, 2_000), (4, 10_000), (3, 40_000)  # sorts of operations, and operations
_REPEATED = 50  # times: a model with fewer layers in a loop is made so, once
_ALONE = 1_500  # operations of a loop in a script without programs of its own
_MANY = 50_000
_FEWEST_WRITES = 200  # `x.at[i].set(...)`, each of which copies the array
_MUCH_SECONDS = 0.6  # that the operations of a loop took, without what compiled
_LONGEST = 5e-4  # seconds of one run that are counted: more is what the device computes
_MOST_OF_IT = 0.6
# Whose operations are of keys, indices and shapes: they make what a compiled step is called with.
_PREPARES = {
    "_getitem", "rewriting_take", "__iter__", "split", "fold_in", "key", "PRNGKey", "randint", "permutation", "asarray",
    "array", "arange", "zeros", "ones", "full", "eye", "convert_element_type", "unstack", "normal", "uniform",
    "bernoulli", "categorical", "choice",
}  # fmt: skip
_PREPARED = "prepared"  # what they are counted as
# What waits for the device, by name: what is found, and what to do.
_WAITS = {
    FETCH: (
        "fetches a value from the device {:,} times, as `float(x)`, `x.item()` and `np.asarray(x)` do",
        "Keep the arrays themselves, `losses.append(loss)`, and fetch many at once, by `jax.device_get(losses)` after "
        "the loop or every hundred turns; compile what is decided by a value.",
    ),
    WAIT: (
        "calls `block_until_ready` {:,} times",
        "Leave it out, which changes no result: jax waits by itself where a value is read. It is for measuring.",
    ),
}  # fmt: skip
_CLOCK = re.compile(r"\btime\(|perf_counter|monotonic|timeit")
_FEWEST_FETCHES = 100  # in a loop: fewer are one for each epoch
_APART = 5e-5  # seconds between two of them
_LOST_SECONDS, _VERY_MUCH_LOST = 0.2, 5.0  # in which the device idles


class _Operation(NamedTuple):
    name: str
    place: tuple[int, ...]  # the instructions of the user's innermost line, and of libraries inside of it
    lines: tuple[tuple[CodeType, int], ...]  # of the user's that it was called through, the innermost first


_Counts = Counter[_Operation]


class Loops:
    """What jax runs outside of programs, by the user's lines."""

    def __init__(self) -> None:
        self.counts: _Counts = Counter()
        self.seconds: defaultdict[_Operation, float] = defaultdict(float)  # that it ran, or the device idled
        self.compiling = 0.0  # seconds so far, for which the clock of fetches stops
        self.has_programs = False  # of the user's, which any loop may call
        self._fetched = 0.0  # when the latest value was there

    def watch(self, until: ExitStack, careful: Callable[..., None]) -> None:
        """Has jax call `note_operation` and `note_fetch`, by way of `careful(note, ...)`."""
        watch_operations(until, partial(careful, self.note_operation))
        watch_arrays(until, partial(careful, self.note_fetch))

    def note_operation(self, name: str, took: float) -> None:
        self._note(_PREPARED if name in _PREPARES else name, min(took, _LONGEST))

    def note_fetch(self, name: str, took: float) -> None:
        now = time.perf_counter() - self.compiling
        between = now - took - self._fetched
        if between > _APART:  # several at once, such as a list of arrays, are one
            self._note(name, min(took, between))
        self._fetched = time.perf_counter() - self.compiling  # without what it took to note it

    def _note(self, name: str, seconds: float) -> None:
        lines: list[tuple[CodeType, int]] = []
        place: list[int] = []
        frame = sys._getframe(1)
        while frame is not None:
            code, kind = frame.f_code, rank(frame.f_code.co_filename)
            if not (lines or place or kind or name in _WAITS) and code.co_name in _PREPARES:
                name = _PREPARED
            if name == WAIT and not lines and kind == 1:  # Equinox waits in each call of its own
                return
            if kind and not lines:
                place.append(frame.f_lasti)
            if kind == USERS:
                lines.append((code, frame.f_lineno))
            frame = frame.f_back
        if lines:
            operation = _Operation(name, tuple(place), tuple(lines))
            self.counts[operation] += 1
            self.seconds[operation] += seconds

    def diagnoses(self) -> Iterator[Diagnosis]:
        """One for each loop that runs many sorts of operations, nothing but operations, or writes into an array again
        and again; and for each that waits for values.
        """
        apart = {*_WAITS, _PREPARED} if self.has_programs else {*_WAITS}  # else they are all that it does
        for line, counts in _loops_of({it: n for it, n in self.counts.items() if it.name not in apart}, self._is_much):
            yield self._diagnosis(line, counts, self._of_operations(line, counts))
        for line, counts in _loops_of({it: n for it, n in self.counts.items() if it.name in _WAITS}, self._idles):
            yield self._diagnosis(line, counts, self._of_waits(line, counts))

    def _diagnosis(self, line: Line, counts: _Counts, finding: Finding) -> Diagnosis:
        name = line.function.rpartition(".")[2]
        return Diagnosis(name, line.place, (finding,), {"operations": counts.total()})

    def _seconds(self, counts: _Counts) -> float:
        return sum(self.seconds[it] for it in counts)

    def _is_much(self, counts: _Counts) -> bool:
        repeated = [count for count in counts.values() if count >= _REPEATED]
        sorts, total = len(repeated), sum(repeated)
        is_alone = total >= _ALONE and not self.has_programs
        is_enough = any(sorts >= it[0] and total >= it[1] for it in _ENOUGH)
        return _writes_of(counts) >= _FEWEST_WRITES or is_alone or is_enough

    def _idles(self, counts: _Counts) -> bool:
        is_benchmark = any(it.name == WAIT and _reads_clock(it) for it in counts)
        return counts.total() >= _FEWEST_FETCHES and self._seconds(counts) >= _LOST_SECONDS and not is_benchmark

    def _of_operations(self, line: Line, counts: _Counts) -> Finding:
        total, places, writes, seconds = counts.total(), len(counts), _writes_of(counts), self._seconds(counts)
        copies = f"; {writes:,} of them copy an array to write a part of it" if writes >= _FEWEST_WRITES else ""
        severity: Severity = "low" if seconds < _MUCH_SECONDS else "high" if total >= _MANY else "medium"
        message = f"The loop around this line runs {total:,} operations one by one, from "
        message += f"{counted(places, 'place')}{copies}, which took about {seconds_text(seconds)} without compiling: "
        message += "each takes the host longer than the device, and nothing is fused."
        advice = "Compile what a turn does: put it into a function, and that into `jax.jit` or `partax.filter_jit`, "
        advice += "and have `jax_disable_jit` off; "
        advice += "make the loop a `jax.lax.scan` or `jax.lax.fori_loop` inside of a compiled function; or do it in "
        advice += "NumPy, if the arrays are small and no gradient is needed."
        return finding_at(line, "dispatch", severity, message, advice, operations=total, places=places)

    def _of_waits(self, line: Line, counts: _Counts) -> Finding:
        [(operation, _)], times, lost = counts.most_common(1), counts.total(), self._seconds(counts)
        does, advice = _WAITS[operation.name]
        message = f"The loop around this line {does.format(times)}, and the host waits for each: the device idles "
        message += f"until the next turn begins, about {seconds_text(lost)} in all."
        severity: Severity = "medium" if lost >= _VERY_MUCH_LOST else "low"
        return finding_at(line, "host", severity, message, advice, times=times, lost_seconds=lost)


def _loops_of(all_counts: dict[_Operation, int], is_much: Callable[[_Counts], bool]) -> Iterator[tuple[Line, _Counts]]:
    """The loops whose operations are much, each by the line that most of them come from."""
    by_loop: dict[tuple[str, int, int], _Counts] = {}
    for operation, count in all_counts.items():
        lines = [Line(code.co_filename, line, code.co_qualname) for code, line in operation.lines]
        # Once each: a comprehension has a frame of its own at the same line.
        for loop in {(it.file, *loops[0]) for it in lines if (loops := loops_around(it))}:
            by_loop.setdefault(loop, Counter())[operation] += count
    covered: set[_Operation] = set()
    # An outer loop has all that those inside of it have: the finding is at the innermost that has most of it.
    for (file, first, last), counts in sorted(by_loop.items(), key=lambda it: it[0][2] - it[0][1]):
        around = [it for (name, a, b), it in by_loop.items() if name == file and a <= first and last <= b]
        is_most = counts.total() >= _MOST_OF_IT * max(it.total() for it in around)
        if covered.isdisjoint(counts) and is_most and is_much(counts):
            covered.update(counts)
            at: Counter[Line] = Counter()
            for operation, count in counts.items():
                here = [it for it in operation.lines if it[0].co_filename == file and first <= it[1] <= last]
                at[Line(file, here[-1][1], here[-1][0].co_qualname)] += count
            yield at.most_common(1)[0][0], counts


def _writes_of(counts: _Counts) -> int:
    writes = ("scatter", "dynamic_update_slice")
    return max((count for it, count in counts.items() if it.name.startswith(writes)), default=0)


def _reads_clock(operation: _Operation) -> bool:
    """Whether the loop around its innermost line that is in one reads a clock: a benchmark is to wait."""
    for code, number in operation.lines:
        for first, last in loops_around(Line(code.co_filename, number, code.co_qualname)):
            return any(_CLOCK.search(linecache.getline(code.co_filename, it)) for it in range(first, last + 1))
    return False
