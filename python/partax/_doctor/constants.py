"""Finds arrays that a program has captured, and operations on them that XLA evaluates while it compiles."""

from collections.abc import Iterator
from typing import NamedTuple

from partax._doctor.captures import Captured, Captures
from partax._doctor.examined import Examined
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.flat_program import Place
from partax._doctor.lines import Line
from partax._pytree.array_text import array_text
from partax._report.captured_arrays import Holder, holders
from partax._report.figure_text import bytes_text, seconds_text

# Of all captured arrays together: each program has its own copy, and XLA takes 18 ms for each MiB.
_FEWEST_BYTES = 1 << 20
_HIGH_BYTES = 64 << 20  # from which it takes a second
_SMALLEST_SHARE = 0.1  # of those bytes; what holds less is told in one finding with all such
# From which XLA itself warns ("Constant folding an instruction is taking > 1s").
_FEWEST_SECONDS = 1.0
_HIGH_SECONDS = 10.0


class _Group(NamedTuple):
    """The captured arrays of one variable, or of one line where no variable is known; the largest first."""

    holder: Holder | None
    arrays: list[Captured]

    @property
    def bytes(self) -> int:
        return sum(it.bytes for it in self.arrays)

    @property
    def name(self) -> str:
        if self.holder is None:
            return ""
        return self.holder.name if len(self.arrays) == 1 else self.holder.root


def find(examined: Examined) -> Iterator[Finding]:
    """Findings of the kind `constant`."""
    captures = Captures(examined)
    total = sum(it.bytes for it in captures.arrays)
    if total >= _FEWEST_BYTES:
        rest: list[Captured] = []
        for group in _groups(examined, captures.arrays):
            if group.bytes >= total * _SMALLEST_SHARE:
                yield _captured(examined, group)
            else:
                rest += group.arrays
        if sum(it.bytes for it in rest) >= _FEWEST_BYTES:
            yield _captured(examined, _Group(None, sorted(rest, key=lambda it: -it.bytes)))
    yield from _folded(captures.folded)


def _groups(examined: Examined, arrays: list[Captured]) -> list[_Group]:
    """The arrays by the variable that holds them, or by line; the largest group first."""
    arrays = sorted(arrays, key=lambda it: -it.bytes)
    found: dict[object, _Group] = {}
    found_in = holders([it.value for it in arrays], examined.function, examined.statics)
    for captured, holder in zip(arrays, found_in, strict=True):
        key = captured.line if holder is None else holder[:2]
        found.setdefault(key, _Group(holder, [])).arrays.append(captured)
    return sorted(found.values(), key=lambda group: -group.bytes)


def _captured(examined: Examined, group: _Group) -> Finding:
    first, count, size = group.arrays[0], len(group.arrays), group.bytes
    what = array_text(first.value) if count == 1 else f"{count} arrays"
    severity: Severity = "low" if first.is_hoisted else "high" if size >= _HIGH_BYTES else "medium"
    how = "each call passes it as a hidden argument" if first.is_hoisted else "it is compiled in as a constant"
    if group.holder is not None:
        message = (
            f"{group.holder.kind} `{group.name}` holds {what} ({bytes_text(size)}), which the program has captured"
        )
    else:
        of = " of no variable of its own" if examined.function is not None else ""
        message = f"the program has captured {what} ({bytes_text(size)}){of}"
    message += f": {how}"
    name = f"`{group.name}`" if group.name else "it"
    advice = (
        f"pass {name} as an argument of `{examined.name}`, or make it a part of the model that is one: then programs "
        "share it, and a new value needs no new trace"
    )
    return finding_at(first.line, "constant", severity, {"bytes": size, "arrays": count}, message, advice, group.name)


def _folded(folded: list[tuple[Place, float]]) -> Iterator[Finding]:
    lines: dict[Line, list[tuple[Place, float]]] = {}
    for place, seconds in folded if sum(seconds for _, seconds in folded) >= _FEWEST_SECONDS else ():
        lines.setdefault(place.line, []).append((place, seconds))
    by_seconds = sorted(((sum(it for _, it in found), line) for line, found in lines.items()), reverse=True)
    for at, (seconds, line) in enumerate(by_seconds):
        if at and seconds < _FEWEST_SECONDS:
            return
        eqn = max(lines[line], key=lambda it: it[1])[0].eqn
        yield finding_at(
            line,
            "constant",
            "high" if seconds >= _HIGH_SECONDS else "medium",
            {"folding_seconds": round(seconds, 2), "operations": len(lines[line])},
            f"`{eqn.primitive.name}` of {array_text(eqn.invars[0].aval)} depends on no argument: XLA evaluates it "
            f"while it compiles, which takes about {seconds_text(seconds)}",
            "compute it once outside of the function and pass the result as an argument, or pass the array that it is "
            "computed from: what depends on an argument is not evaluated by the compiler",
        )
