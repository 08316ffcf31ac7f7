"""Finds programs that need more memory than there is, and arrays that dwarf all that comes in and goes out."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from partax._doctor.diagnosis import Finding
from partax._doctor.equations import bytes_of
from partax._doctor.examined import Examined
from partax._doctor.figure_text import bytes_text
from partax._doctor.lines import Line
from partax._doctor.liveness import Buffer, live_bytes

_NEARLY_FULL = 0.8  # XLA's own estimates are off by as much, and the runtime keeps some memory for itself
_FEWEST_BYTES = 1 << 30  # of one array: a smaller one fits into any accelerator
_MANY_TIMES = 4  # what comes in and goes out; activations of common networks stay below
_NAMED = 3


def find(examined: Examined) -> Iterator[Finding]:
    """Findings of the kind `memory`."""
    if is_spread(examined) and examined.compiled is None:
        return  # which part of it one device has is not known
    limit = memory_limit(examined)
    enough = _FEWEST_BYTES if limit is None else min(_FEWEST_BYTES, _NEARLY_FULL * limit)
    if most_bytes(examined) < enough:
        return
    peak = peak_bytes(examined)
    made = [buffer for buffer in live_bytes(examined).largest if buffer.line is not None]
    if limit is not None and peak > _NEARLY_FULL * limit:
        yield _too_much(examined, peak, limit, made)
        return
    around = sum(leaf.bytes for leaf in (*examined.arguments, *examined.results))
    first = made[0] if made else None
    if first is not None and first.line is not None and first.bytes >= max(_FEWEST_BYTES, _MANY_TIMES * around + 1):
        yield _dwarfs(first, first.line, around, peak)


def most_bytes(examined: Examined) -> int:
    """What the program takes at most, whatever is let go in between: it is known without a walk."""
    given = sum(leaf.bytes for leaf in examined.arguments) + sum(map(bytes_of, examined.jaxpr.consts))
    return given + examined.equations.result_bytes


def peak_bytes(examined: Examined) -> int:
    """The most bytes that live at once: XLA's figure where the program is compiled, else an estimate."""
    found = None if examined.compiled is None else examined.compiled.memory_analysis()
    if found is None:
        return live_bytes(examined).peak
    taken = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return taken - found.alias_size_in_bytes


def memory_limit(examined: Examined) -> int | None:
    """The bytes that a program may take: as the user says, or those of the device; None where nobody knows."""
    told = told_limit(examined)
    if told is not None or jax.local_devices()[0].platform != "cpu":
        return told
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not of this system
        return None


def told_limit(examined: Examined) -> int | None:
    """The same, but for the memory of the machine."""
    if examined.memory_limit is not None:
        return examined.memory_limit
    return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")


def is_spread(examined: Examined) -> bool:
    """Whether an array of the arguments is on several devices."""

    def count(leaf: Any) -> int:
        return len(getattr(getattr(leaf, "sharding", None), "device_set", ()))

    return any(count(leaf) > 1 for leaf in jax.tree.leaves((examined.args, examined.kwargs)))


def _too_much(examined: Examined, peak: int, limit: int, made: list[Buffer]) -> Finding:
    whose = "XLA's figure" if examined.compiled is not None else "an estimate"
    share = f"{peak / limit:.0%} of" if peak <= limit else "more than"
    message = f"The program takes {bytes_text(peak)} at once ({whose}), {share} the {bytes_text(limit)} that there are"
    advice = "Pass smaller arguments, or donate those that the result replaces."
    if made:
        message += "; the largest arrays that it makes: " + ", ".join(map(_text, made[:_NAMED]))
        advice = _advice(made[0])
    first = made[0] if made else None
    line = first.line if first is not None else None
    figures: dict[str, int | float | str] = {"peak_bytes": peak, "limit_bytes": limit, "share": min(peak / limit, 1.0)}
    if first is not None:
        figures["largest_bytes"] = first.bytes
    return Finding(
        kind="memory",
        severity="high" if peak > limit else "medium",
        file=line.file if line else "",
        line=line.line if line else 0,
        source=line.source if line else "",
        path="",
        figures=figures,
        message=message + ".",
        advice=advice,
    )


def _text(buffer: Buffer) -> str:
    where = f" at {Path(buffer.line.file).name}:{buffer.line.line}" if buffer.line else ""
    return f"{buffer.type} ({bytes_text(buffer.bytes)}){where}"


def _dwarfs(buffer: Buffer, line: Line, around: int, peak: int) -> Finding:
    return Finding(
        kind="memory",
        severity="medium",
        file=line.file,
        line=line.line,
        source=line.source,
        path="",
        figures={"largest_bytes": buffer.bytes, "argument_and_result_bytes": around, "peak_bytes": peak},
        message=(
            f"This line makes {buffer.type}, which takes {bytes_text(buffer.bytes)}; all arguments and results take "
            f"{bytes_text(around)}."
        ),
        advice=_advice(buffer),
    )


def _advice(buffer: Buffer) -> str:
    if buffer.name == "scan":
        return (
            "Have the scan's body return less for each step; in a gradient, `jax.checkpoint` of the body computes "
            "again what else is kept of each."
        )
    return (
        "Compute the largest array in blocks, by `jax.lax.map(..., batch_size=...)` or a scan over a part of its rows, "
        "so that it never is there as a whole; in a gradient, `jax.checkpoint` computes it again instead of keeping it."
    )
