"""Finds loops of a script whose operations are run one after the other, as where `jit` was forgotten."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import NamedTuple

from partax._doctor.diagnosis import Diagnosis
from partax._doctor.finding import finding_at
from partax._doctor.lines import USERS, Line, loop_around, rank

# A dispatch takes 10 to 100 us. A loop around a compiled step makes keys, slices batches and sums losses by up to four
# sorts of operations; a model that is not compiled has a dozen, its gradient several, and a small function five.
_FEWEST, _FEWEST_SORTS = 800, 8
_MORE, _FEWER_SORTS = 2_000, 5
_REPEATED = 50  # times: a model with fewer layers in a loop is made so, once
_MANY = 50_000
_FEWEST_WRITES = 200  # `x.at[i].set(...)`, each of which copies the array
_MOST_OF_IT = 0.6
_WRITES = ("scatter", "dynamic_update_slice")
# Whose operations are of keys, indices and shapes: they make what a compiled step is called with.
_PREPARES = {
    "_getitem", "rewriting_take", "__iter__", "split", "fold_in", "key", "PRNGKey", "randint", "permutation", "asarray",
    "array", "arange", "zeros", "ones", "full", "eye", "convert_element_type",
}  # fmt: skip


class _Operation(NamedTuple):
    name: str
    place: tuple[int, ...]  # the instructions of the user's innermost line, and of libraries inside of it
    lines: tuple[tuple[CodeType, int], ...]  # of the user's that it was called through, the innermost first


class OneByOne:
    def __init__(self) -> None:
        self.counts: Counter[_Operation] = Counter()

    def note(self, name: str) -> None:
        if name in _PREPARES:
            return
        lines: list[tuple[CodeType, int]] = []
        place: list[int] = []
        frame = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if not place and code.co_name in _PREPARES:
                return
            if rank(code.co_filename) and not lines:
                place.append(frame.f_lasti)
            if rank(code.co_filename) == USERS:
                lines.append((code, frame.f_lineno))
            frame = frame.f_back
        if lines:
            self.counts[_Operation(name, tuple(place), tuple(lines))] += 1

    def diagnoses(self) -> Iterator[Diagnosis]:
        """A diagnosis for each loop that runs many sorts of operations, or writes into an array again and again."""
        loops: dict[tuple[str, int, int], Counter[_Operation]] = {}
        for operation, count in self.counts.items():
            for code, line in operation.lines:
                loop = loop_around(Line(code.co_filename, line, code.co_qualname))
                if loop is not None:
                    loops.setdefault((code.co_filename, *loop), Counter())[operation] += count
        told: set[_Operation] = set()
        # An outer loop has all that those inside of it have: the innermost that has most of it is told.
        for (file, first, last), counts in sorted(loops.items(), key=lambda it: it[0][2] - it[0][1]):
            around = [it for (name, begin, end), it in loops.items() if name == file and begin <= first and last <= end]
            is_most = counts.total() >= _MOST_OF_IT * max(it.total() for it in around)
            if not told.isdisjoint(counts) or not is_most or not _is_much(counts):
                continue
            told.update(counts)
            yield _diagnosis(file, first, last, counts)


def _is_much(counts: Mapping[_Operation, int]) -> bool:
    repeated = [count for count in counts.values() if count >= _REPEATED]
    writes = max((count for it, count in counts.items() if it.name.startswith(_WRITES)), default=0)
    sorts, total = len(repeated), sum(repeated)
    is_model = (sorts >= _FEWEST_SORTS and total >= _FEWEST) or (sorts >= _FEWER_SORTS and total >= _MORE)
    return writes >= _FEWEST_WRITES or is_model


def _diagnosis(file: str, first: int, last: int, counts: Counter[_Operation]) -> Diagnosis:
    lines: Counter[tuple[CodeType, int]] = Counter()
    for operation, count in counts.items():
        here = [it for it in operation.lines if it[0].co_filename == file and first <= it[1] <= last]
        lines[here[-1]] += count
    [((code, number), _)] = lines.most_common(1)
    line = Line(file, number, code.co_qualname)
    total, writes = counts.total(), sum(count for it, count in counts.items() if it.name.startswith(_WRITES))
    copies = f"; {writes:,} of them copy an array to write a part of it" if writes >= _FEWEST_WRITES else ""
    finding = finding_at(
        line,
        "dispatch",
        "high" if total >= _MANY else "medium",
        f"The loop around this line runs {total:,} operations one by one, from {len(counts)} places{copies}: each "
        "takes the host longer than the device, and nothing is fused.",
        "Compile what a turn does: put it into a function, and that into `jax.jit` or `partax.filter_jit`; or make the "
        "loop a `jax.lax.scan` or `jax.lax.fori_loop` inside of a compiled function.",
        operations=total,
        places=len(counts),
    )
    return Diagnosis(code.co_name, line.place, (finding,), {"operations": total})
