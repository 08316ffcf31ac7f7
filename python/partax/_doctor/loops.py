"""Finds what a script does outside of programs: loops where jit was forgotten, or that wait for values."""

import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from partax._doctor.figures import seconds_text
from partax._doctor.finding import Diagnosis, Finding, Severity, finding_at
from partax._doctor.lines import USERS, Line, loops_around, rank
from partax._jax.watched import FETCH, WAIT

# A dispatch takes 10 to 100 us. A loop around a compiled step makes keys, slices batches and sums losses by up to four
# sorts of operations; a model that is not compiled has a dozen, its gradient several, a small function five.
_FEWEST_SORTS, _FEWEST_OPERATIONS = 5, 1_000
_FEWEST_REPETITIONS = 50  # of an operation: a model with fewer layers in a loop is made so, once
_MUCH_SECONDS = 0.6  # that the operations of a loop took, without what compiled
_MANY = 50_000
_LONGEST = 5e-4  # seconds of one run that are counted: more is what the device computes
_MOST = 0.6  # of the operations of a loop, from which the finding is at a loop inside that
# Whose operations are of keys, indices and shapes: they make what a compiled step is called with.
_PREPARES = {
    "_getitem", "rewriting_take", "__iter__", "split", "fold_in", "key", "PRNGKey", "randint", "permutation", "asarray",
    "array", "arange", "zeros", "ones", "full", "eye", "convert_element_type", "unstack", "normal", "uniform",
    "bernoulli", "categorical", "choice",
}  # fmt: skip
_PREPARATION = "preparation"  # what they are counted as
# What waits for the device, by name: what a finding says of it, and what to do.
_WAITS = {
    FETCH: (
        "fetches a value from the device {:,} times, as `float(x)`, `x.item()` and `np.asarray(x)` do",
        "Keep the arrays, by `losses.append(loss)`, and fetch many at once, by `jax.device_get(losses)`.",
    ),
    WAIT: (
        "calls `block_until_ready` {:,} times",
        "Leave it out, which changes no result: jax waits by itself where a value is read. It is for measuring.",
    ),
}  # fmt: skip
_FEWEST_FETCHES = 100  # in a loop: fewer are one for each epoch
_APART = 5e-5  # seconds between two of them
_LOST_SECONDS, _VERY_MUCH_LOST = 0.2, 5.0  # in which the device idles

_OPERATIONS = "The loop around this line runs {:,} operations one by one, which took about {} without compiling."
_COMPILE = (
    "Compile what a turn does, by `jax.jit` or `partax.filter_jit` with `jax_disable_jit` off; make the loop a "
    "`jax.lax.scan` inside a compiled function; or do it in NumPy, if the arrays are small."
)
_WAITING = "The loop around this line {}, and the host waits for each: the device idles for about {} in all."


class Operation(NamedTuple):
    name: str
    lines: tuple[Line, ...]  # of the user's that it was called through, the innermost first


Counts = Counter[Operation]
Describe = Callable[[Line, Counts], Finding | None]


class Loops:
    def __init__(self) -> None:
        self.counts: Counts = Counter()
        self.seconds: defaultdict[Operation, float] = defaultdict(float)  # that it ran, or the device idled
        self.compiling = 0.0  # seconds so far, for which the clock of fetches stops
        self.has_programs = False  # of the user's, which any loop may call
        self._latest_fetch = 0.0  # when its value was there

    def note_operation(self, name: str, seconds: float) -> None:
        self._note(_PREPARATION if name in _PREPARES else name, min(seconds, _LONGEST))

    def note_fetch(self, name: str, seconds: float) -> None:
        now = time.perf_counter() - self.compiling
        between = now - seconds - self._latest_fetch
        if between > _APART:  # several at once, such as a list of arrays, are one
            self._note(name, min(seconds, between))
        self._latest_fetch = time.perf_counter() - self.compiling  # without what it took to note it

    def _note(self, name: str, seconds: float) -> None:
        lines: list[Line] = []
        is_in_library = False
        for frame, number in traceback.walk_stack(sys._getframe()):
            code, kind = frame.f_code, rank(frame.f_code.co_filename)
            if not (lines or is_in_library or kind or name in _WAITS) and code.co_name in _PREPARES:
                name = _PREPARATION
            if name == WAIT and not lines and kind == 1:  # Equinox waits in each call of its own
                return
            is_in_library |= kind > 0
            if kind == USERS:
                lines.append(Line(code.co_filename, number, code.co_qualname))
        if lines:
            operation = Operation(name, tuple(lines))
            self.counts[operation] += 1
            self.seconds[operation] += seconds

    def diagnoses(self) -> Iterator[Diagnosis]:
        apart = {*_WAITS, _PREPARATION} if self.has_programs else {*_WAITS}  # else they are all that it does
        operations = {operation: n for operation, n in self.counts.items() if operation.name not in apart}
        waits = {operation: n for operation, n in self.counts.items() if operation.name in _WAITS}
        yield from (*_innermost(operations, self._of_operations), *_innermost(waits, self._of_waits))

    def _of_operations(self, line: Line, counts: Counts) -> Finding | None:
        repeated = [count for count in counts.values() if count >= _FEWEST_REPETITIONS]
        is_enough = len(repeated) >= _FEWEST_SORTS or not self.has_programs
        if not is_enough or sum(repeated) < _FEWEST_OPERATIONS:
            return None
        total, seconds = counts.total(), sum(self.seconds[operation] for operation in counts)
        message = _OPERATIONS.format(total, seconds_text(seconds))
        severity: Severity = "low" if seconds < _MUCH_SECONDS else "high" if total >= _MANY else "medium"
        figures = {"operations": total, "operation_seconds": seconds}
        return finding_at(line, "dispatch", severity, message, _COMPILE, **figures)

    def _of_waits(self, line: Line, counts: Counts) -> Finding | None:
        times, seconds = counts.total(), sum(self.seconds[operation] for operation in counts)
        if times < _FEWEST_FETCHES or seconds < _LOST_SECONDS:
            return None
        does, advice = _WAITS[counts.most_common(1)[0][0].name]
        message = _WAITING.format(does.format(times), seconds_text(seconds))
        severity: Severity = "medium" if seconds >= _VERY_MUCH_LOST else "low"
        return finding_at(line, "host", severity, message, advice, times=times, lost_seconds=seconds)


def _innermost(all_counts: dict[Operation, int], describe: Describe) -> Iterator[Diagnosis]:
    """The innermost loops with a finding, each by the line that most of its operations come from."""
    by_loop: defaultdict[tuple[str, int, int], Counts] = defaultdict(Counter)
    for operation, count in all_counts.items():
        # Once each: a comprehension has a frame of its own at the same line.
        for loop in {(line.file, *loops[0]) for line in operation.lines if (loops := loops_around(line))}:
            by_loop[loop][operation] += count
    covered: set[Operation] = set()
    # An outer loop has all that those inside it have: the finding is at the innermost that has most of it.
    for (file, first, last), counts in sorted(by_loop.items(), key=lambda pair: pair[0][2] - pair[0][1]):
        outer = [other for (name, a, b), other in by_loop.items() if name == file and a <= first and last <= b]
        is_most = counts.total() >= _MOST * max(other.total() for other in outer)
        if not is_most or not covered.isdisjoint(counts):
            continue
        at: Counter[Line] = Counter()
        for operation, count in counts.items():
            at[[line for line in operation.lines if line.file == file and first <= line.line <= last][-1]] += count
        line = at.most_common(1)[0][0]
        if finding := describe(line, counts):
            covered.update(counts)
            yield Diagnosis(line.function.rpartition(".")[2], line.place, (finding,), {"operations": counts.total()})
