"""Finds what a script's loops do outside of programs: single operations, values that are fetched, NumPy arrays."""

import linecache
import math
import re
import sys
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import CodeType
from typing import Any, NamedTuple

import jax
import numpy as np

from partax._doctor.doctor import Diagnosis
from partax._doctor.finding import Figures, Finding, Kind, Severity, finding_at
from partax._doctor.lines import NOWHERE, USERS, Line, grouped, loop_around, rank, running_line
from partax._jax.watched import FETCH, LARGE, WAIT, watch_arrays, watch_operations
from partax._pytree.short_text import array_text
from partax._report.table import bytes_text, counted, seconds_text

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
_WRITES = ("scatter", "dynamic_update_slice")
# Whose operations are of keys, indices and shapes: they make what a compiled step is called with.
_PREPARES = {
    "_getitem", "rewriting_take", "__iter__", "split", "fold_in", "key", "PRNGKey", "randint", "permutation", "asarray",
    "array", "arange", "zeros", "ones", "full", "eye", "convert_element_type", "unstack", "normal", "uniform",
    "bernoulli", "categorical", "choice",
}  # fmt: skip
_JIT, _CHECK, _PREPARED = "jit", "check", "prepared"  # a jit's Python, checks of results, and `_PREPARES`
# By the name of what is noted: the sort, what is found, and what to do.
_TOLD = {
    FETCH: (
        FETCH, "The loop around this line fetches a value from the device {times:,} times, as `float(x)`, `x.item()` "
        "and `np.asarray(x)` do, and the host waits for each, {seconds} in all: the device idles until the next turn "
        "begins, about {lost}.",
        "Keep the arrays themselves, `losses.append(loss)`, and fetch many at once, by `jax.device_get(losses)` after "
        "the loop or every hundred turns; compile what is decided by a value.",
    ),
    WAIT: (
        FETCH, "The loop around this line calls `block_until_ready` {times:,} times, and the host waits for each, "
        "{seconds} in all: the device idles until the next turn begins, about {lost}.",
        "Leave it out, which changes no result: jax waits by itself where a value is read. It is for measuring.",
    ),
    **{
        jit: (
            _JIT, f"The loop around this line calls what `{jit}` has compiled, which takes arguments apart by Python, "
            "and puts results together: {seconds} in all, {share:.0%} of the time of the loop.",
            f"Compile by `{cure}`, which does so without Python.",
        )
        for jit, cure in (("nnx.jit", "partax.nnx.jit"), ("eqx.filter_jit", "partax.filter_jit"))
    },
    **{
        setting: (
            _CHECK, f"`{setting}` is on while the loop around this line runs: jax waits for results and looks at each, "
            "{times:,} times here.",
            f'Turn it off when you have found what you look for: `jax.config.update("{setting}", False)`.',
        )
        for setting in ("jax_debug_nans", "jax_debug_infs")
    },
}  # fmt: skip
_MANY_CHECKED = 500  # operations and fetches
_PYTHON_SHARE = 0.3  # of a loop's time
_CLOCK = re.compile(r"\btime\(|perf_counter|monotonic|timeit")
_FEWEST_FETCHES = 100  # in a loop: fewer are one for each epoch
_APART = 5e-5  # seconds between two of them
_LOST_SECONDS, _LOST_SHARE, _VERY_MUCH_LOST = 0.2, 0.2, 5.0  # in which the device idles for it
_LIST_SECONDS, _MANY_LISTS_SECONDS = 0.5, 5.0  # of this thread, to make arrays of lists
_MOST_CALLS = 10_000  # of a function that are counted: each is some 0.1 ms slower for that
_FEWEST_PASSED = 10  # calls with the same NumPy array
_MUCH_PASSED, _VERY_MUCH_PASSED = 64 << 20, 8 << 30  # bytes in all of them


class _Operation(NamedTuple):
    name: str
    place: tuple[int, ...]  # the instructions of the user's innermost line, and of libraries inside of it
    lines: tuple[tuple[CodeType, int], ...]  # of the user's that it was called through, the innermost first


class _Passed(NamedTuple):
    array: Any  # refers to the NumPy array that was passed
    digest: int  # of some of it, as a buffer may be filled anew
    text: str
    bytes: int = 0  # of all calls with the same one
    times: int = 0


_Lines = tuple[str, int, int]  # of a loop: the file, the first and the last
_IsMuch = Callable[[Counter[_Operation]], bool]
_Told = Callable[[Line, Counter[_Operation]], Finding]


class OneByOne:
    def __init__(self) -> None:
        self.counts: Counter[_Operation] = Counter()
        self.seconds: defaultdict[_Operation, float] = defaultdict(float)  # that it ran, or the host waited
        self.lost: defaultdict[_Operation, float] = defaultdict(float)  # in which the device idles for a fetch
        self.spans: dict[_Operation, tuple[float, float]] = {}  # when the first and the latest came
        self.calls: Counter[tuple[str, int]] = Counter()  # of what `jax.jit` has compiled, by its first line
        self.compiling = 0.0  # seconds so far, for which the clock of fetches stops
        self.lists: defaultdict[Line, list[float]] = defaultdict(list)  # the seconds of each that became an array
        self.has_programs = False  # of the user's, which any loop may call
        self._fetched = 0.0  # when the latest value came
        self._passed: dict[tuple[Line, str, int], _Passed] = {}

    def watch(self, until: ExitStack, careful: Callable[..., None]) -> None:
        """Is told, by way of `careful(note, ...)`, of what jax runs in this process outside of programs."""
        watch_operations(until, *(partial(careful, it) for it in (self.note, self.note_passed, self.note_call)))
        watch_arrays(until, *(partial(careful, it) for it in (self.note_fetch, self.note_list, self.note_placed)))

    def note(self, name: str, took: float) -> None:
        self._called(_PREPARED if name in _PREPARES else name, 0.0, min(took, _LONGEST))

    def note_fetch(self, name: str, _: Any, took: float) -> None:
        now = time.perf_counter() - self.compiling
        # Several at once, as of a list of arrays, are one.
        operation = self._called(name, now, took) if now - took - self._fetched > _APART else None
        if operation is not None:
            self.lost[operation] += min(took, max(now - took - self._fetched, 0.0))
        self._fetched = time.perf_counter() - self.compiling  # without what it took to note it

    def note_call(self, function: Any) -> bool:
        code = getattr(function, "__code__", None)  # its own, and not what a wrapper of a library is for
        if code is None or rank(code.co_filename) != USERS:
            return False
        self.calls[code.co_filename, code.co_firstlineno] += 1
        return self.calls[code.co_filename, code.co_firstlineno] < _MOST_CALLS

    def note_jit(self, name: str, _: Any, took: float) -> None:
        self._called(name, time.perf_counter() - self.compiling, took)

    def note_list(self, _: str, __: Any, took: float) -> None:
        self.lists[running_line() or NOWHERE].append(took)

    def _called(self, name: str, now: float, took: float) -> _Operation | None:
        lines: list[tuple[CodeType, int]] = []
        place: list[int] = []
        frame = sys._getframe(1)
        is_checked = next((it for it in ("jax_debug_nans", "jax_debug_infs") if getattr(jax.config, it, False)), "")
        while frame is not None:
            code = frame.f_code
            if not (lines or place or rank(code.co_filename) or name in _TOLD) and code.co_name in _PREPARES:
                name = _PREPARED
            if name == WAIT and not lines and rank(code.co_filename) == 1:  # Equinox waits in each call of its own
                return None
            if rank(code.co_filename) and not lines:
                place.append(frame.f_lasti)
            if rank(code.co_filename) == USERS:
                lines.append((code, frame.f_lineno))
            frame = frame.f_back
        if not lines:
            return None
        operation = _Operation(name if name == _PREPARED else is_checked or name, tuple(place), tuple(lines))
        self.counts[operation] += 1
        self.seconds[operation] += took
        self.spans[operation] = self.spans.get(operation, (now, now))[0], now
        return operation

    def note_placed(self, function: str, value: Any, _: float) -> None:
        leaves = jax.tree.leaves(value)
        self.note_passed(function, ["its argument"] * len(leaves), leaves)

    def note_passed(self, function: str, names: Sequence[str], leaves: Sequence[Any]) -> None:
        line = running_line() or NOWHERE
        for name, it in zip(names, leaves, strict=False):
            if isinstance(it, np.ndarray) and it.nbytes >= LARGE:
                digest = hash(it[tuple(slice(None, None, max(1, length // 4)) for length in it.shape)].tobytes())
                known = self._passed.get((line, function, id(it)))
                if known is None or known.array() is not it or known.digest != digest:
                    called = name if " " in name else f"`{name}`"
                    known = _Passed(weakref.ref(it), digest, f"{called} ({array_text(it)})")
                known = known._replace(bytes=known.bytes + it.nbytes, times=known.times + 1)
                self._passed[line, function, id(it)] = known

    def diagnoses(self) -> Iterator[Diagnosis]:
        """One for each loop that runs many sorts of operations, nothing but operations, or writes into an array again
        and again, or fetches values; and for each line that passes the same NumPy arrays, or lists.
        """
        apart = _TOLD | ({_PREPARED: (_PREPARED,)} if self.has_programs else {})  # else they are all that it does
        sorts = grouped(self.counts, lambda it: apart.get(it.name, ("",))[0])
        for sort, is_much, finding_of in (
            ("", self._is_much, self._of_loop),
            (FETCH, lambda it: it.total() >= _FEWEST_FETCHES, self._of_host),
            (_JIT, self._is_much_python, self._of_host),
            (_CHECK, lambda it: it.total() >= _MANY_CHECKED, self._of_host),
        ):
            yield from self._loops({it: self.counts[it] for it in sorts.get(sort, ())}, is_much, finding_of)
        often = [(at, it) for at, it in self._passed.items() if it.times >= _FEWEST_PASSED]
        for (line, function), its in grouped(often, lambda it: it[0][:2]).items():
            size, times = sum(it.bytes for _, it in its), max(it.times for _, it in its)
            texts = ", ".join(it.text for _, it in its)
            message = f"`{function}` is called {times:,} times with the same NumPy array, {texts}: each call passes it "
            message += f"to the device again, {bytes_text(size)} in all."
            advice = "Put it on the device once, before the loop: `x = jnp.asarray(x)`."
            figures: Figures = {"times": times, "bytes": size}
            yield from _at(line, size, _MUCH_PASSED, _VERY_MUCH_PASSED, message, advice, figures)
        for line, taken in self.lists.items():
            seconds, times = sum(taken), len(taken)
            message = f"`jnp.array` makes {counted(times, 'array')} of Python lists here, in {seconds_text(seconds)}: "
            message += "it looks at each number, and runs operations for each array among them."
            advice = "Let NumPy read it, `jnp.asarray(np.array(x))`; of jax's arrays, use `jnp.stack`."
            figures = {"times": times, "seconds": seconds}
            yield from _at(line, seconds, _LIST_SECONDS, _MANY_LISTS_SECONDS, message, advice, figures)

    def _loops(self, all_counts: Mapping[_Operation, int], is_much: _IsMuch, finding_of: _Told) -> Iterator[Diagnosis]:
        loops: dict[_Lines, Counter[_Operation]] = {}
        for operation, count in all_counts.items():
            lines = [Line(code.co_filename, line, code.co_qualname) for code, line in operation.lines]
            # Once each: a comprehension has a frame of its own at the same line.
            for loop in {(it.file, *loop) for it in lines if (loop := loop_around(it)) is not None}:
                loops.setdefault(loop, Counter())[operation] += count
        told: set[_Operation] = set()
        # An outer loop has all that those inside of it have: the innermost that has most of it is told.
        for (file, first, last), counts in sorted(loops.items(), key=lambda it: it[0][2] - it[0][1]):
            around = [it for (name, begin, end), it in loops.items() if name == file and begin <= first and last <= end]
            is_most = counts.total() >= _MOST_OF_IT * max(it.total() for it in around)
            if not told.isdisjoint(counts) or not is_most or not is_much(counts):
                continue
            told.update(counts)
            at: Counter[tuple[CodeType, int]] = Counter()
            for operation, count in counts.items():
                here = [it for it in operation.lines if it[0].co_filename == file and first <= it[1] <= last]
                at[here[-1]] += count
            [((code, number), _)] = at.most_common(1)
            line = Line(file, number, code.co_qualname)
            yield Diagnosis(code.co_name, line.place, (finding_of(line, counts),), {"operations": counts.total()})

    def _sums(self, counts: Counter[_Operation]) -> tuple[float, float, float]:
        """The seconds of operations, those lost, and those from the first to the latest."""
        begins, ends = zip(*map(self.spans.__getitem__, counts), strict=True)
        return sum(self.seconds[it] for it in counts), sum(self.lost[it] for it in counts), max(ends) - min(begins)

    def _is_much(self, counts: Counter[_Operation]) -> bool:
        repeated = [count for count in counts.values() if count >= _REPEATED]
        writes = max((count for it, count in counts.items() if it.name.startswith(_WRITES)), default=0)
        sorts, total = len(repeated), sum(repeated)
        is_alone = total >= _ALONE and not self.has_programs
        return writes >= _FEWEST_WRITES or is_alone or any(sorts >= it[0] and total >= it[1] for it in _ENOUGH)

    def _is_much_python(self, counts: Counter[_Operation]) -> bool:
        seconds, _, span = self._sums(counts)
        return counts.total() >= 2 * _FEWEST_FETCHES and seconds >= max(_LOST_SECONDS, _PYTHON_SHARE * span)

    def _of_loop(self, line: Line, counts: Counter[_Operation]) -> Finding:
        total, writes = counts.total(), sum(count for it, count in counts.items() if it.name.startswith(_WRITES))
        copies = f"; {writes:,} of them copy an array to write a part of it" if writes >= _FEWEST_WRITES else ""
        seconds, places = self._sums(counts)[0], len(counts)
        severity: Severity = "low" if seconds < _MUCH_SECONDS else "high" if total >= _MANY else "medium"
        message = f"The loop around this line runs {total:,} operations one by one, from "
        message += f"{counted(places, 'place')}{copies}, which took about {seconds_text(seconds)} without compiling: "
        message += "each takes the host longer than the device, and nothing is fused."
        advice = "Compile what a turn does: put it into a function, and that into `jax.jit` or `partax.filter_jit`, "
        advice += "and have `jax_disable_jit` off; "
        advice += "make the loop a `jax.lax.scan` or `jax.lax.fori_loop` inside of a compiled function; or do it in "
        advice += "NumPy, if the arrays are small and no gradient is needed."
        return finding_at(line, "dispatch", severity, message, advice, operations=total, places=places)

    def _of_host(self, line: Line, counts: Counter[_Operation]) -> Finding:
        [(operation, _)], times, (seconds, lost, span) = counts.most_common(1), counts.total(), self._sums(counts)
        sort, message, advice = _TOLD[operation.name]
        cost = {FETCH: lost, _JIT: seconds, _CHECK: math.inf}[sort]
        is_little = lost < max(_LOST_SECONDS, _LOST_SHARE * span) or (operation.name == WAIT and _is_timed(operation))
        severity: Severity = "medium" if cost >= _VERY_MUCH_LOST else "low"
        severity = "info" if sort == FETCH and is_little else severity
        share, told = seconds / max(span, seconds, 1e-9), {"seconds": seconds_text(seconds), "lost": seconds_text(lost)}
        figures = {"times": times, "lost_seconds": lost, "share": share}
        kind: Kind = "dispatch" if sort == _JIT else "host"
        return finding_at(line, kind, severity, message.format(times=times, share=share, **told), advice, **figures)


def _is_timed(operation: _Operation) -> bool:
    """Whether its loop, or a function that is called there, reads a clock: a benchmark is to wait."""
    for code, number in operation.lines:
        loop = loop_around(Line(code.co_filename, number, code.co_qualname))
        first, last = loop or (code.co_firstlineno, max(line or 0 for *_, line in code.co_lines()))
        if any(_CLOCK.search(linecache.getline(code.co_filename, it)) for it in range(first, last + 1)):
            return True
        if loop is not None:
            break
    return False


def _at(
    line: Line, cost: float, much: float, very_much: float, message: str, advice: str, figures: Figures
) -> Iterator[Diagnosis]:
    if cost >= much and line is not NOWHERE:
        severity: Severity = "medium" if cost >= very_much else "low"
        finding = finding_at(line, "host", severity, message, advice, **figures)
        yield Diagnosis(line.function, line.place, (finding,), figures)
