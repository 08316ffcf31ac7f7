"""Finds what takes memory: too much at once, what autodiff keeps of scans, arguments that nothing reads."""

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from partax._doctor.equations import bytes_of, scan_parts
from partax._doctor.examined import Examined, argument_name, definition
from partax._doctor.finding import Figures, Finding, finding_at
from partax._doctor.flat_program import FlatProgram, flat_program
from partax._doctor.lines import NOWHERE, Line, grouped
from partax._doctor.liveness import Buffer, is_spread, live_bytes, memory_limit, peak_bytes, peak_of_xla, told_limit
from partax._pytree.short_text import array_text
from partax._report.table import bytes_text

_NEARLY_FULL = 0.8  # XLA's own estimates are off by as much, and the runtime keeps some memory for itself
_FEWEST_BYTES = 1 << 30  # of one array: a smaller one fits into any accelerator
_MANY_TIMES = 4  # what comes in and goes out; activations of common networks stay below
_NAMED = 3


def find_too_much(examined: Examined) -> Iterator[Finding]:
    if is_spread(examined) and examined.compiled is None:
        return  # which part of it one device has is not known
    limit = memory_limit(examined)
    room = math.inf if limit is None else _NEARLY_FULL * limit
    given = sum(leaf.bytes for leaf in examined.arguments) + sum(map(bytes_of, examined.jaxpr.consts))
    if given + examined.equations.result_bytes < min(_FEWEST_BYTES, room):
        return  # whatever is let go in between: that is known without a walk
    made = [buffer for buffer in live_bytes(examined).largest if buffer.line.file]
    around = sum(leaf.bytes for leaf in (*examined.arguments, *examined.results))
    least = max(_FEWEST_BYTES, _MANY_TIMES * around + 1)
    dwarfing = next((buffer for buffer in made if buffer.bytes >= least), None)
    estimate = peak_bytes(examined)
    if estimate <= room and dwarfing is None:
        return
    of_xla = peak_of_xla(examined)
    peak = estimate if of_xla is None else of_xla
    if limit is not None and peak > room:
        yield _too_much(peak, of_xla is not None, limit, made)
    elif dwarfing is not None and (of_xla is None or of_xla >= dwarfing.bytes):
        verb, size = "may make" if of_xla is None else "makes", bytes_text(dwarfing.bytes)
        figures = {"largest_bytes": dwarfing.bytes, "argument_and_result_bytes": around, "peak_bytes": peak}
        takes = f"which takes {size}; all arguments and results take {bytes_text(around)}"
        message = f"This line {verb} {dwarfing.type}, {takes}."
        yield finding_at(dwarfing.line, "memory", "medium", message, _advice(dwarfing), **figures)


def _too_much(peak: int, is_of_xla: bool, limit: int, made: list[Buffer]) -> Finding:
    takes, whose = ("takes", "XLA's figure") if is_of_xla else ("may take", "an estimate")
    share = f"{peak / limit:.0%} of" if peak <= limit else "more than"
    of = f"{share} the {bytes_text(limit)} that there are"
    message = f"The program {takes} {bytes_text(peak)} at once ({whose}), {of}"
    figures: Figures = {"peak_bytes": peak, "limit_bytes": limit, "share": min(peak / limit, 1.0)}
    line, advice = NOWHERE, "Pass smaller arguments, or donate those that the result replaces."
    if made:
        texts = [f"{it.type} ({bytes_text(it.bytes)}) at {it.line.short_place}" for it in made[:_NAMED]]
        message += f"; the largest arrays that it makes: {', '.join(texts)}"
        figures["largest_bytes"] = made[0].bytes
        line, advice = made[0].line, _advice(made[0])
    return finding_at(line, "memory", "high" if peak > limit else "medium", message + ".", advice, **figures)


def _advice(buffer: Buffer) -> str:
    if buffer.name == "scan":
        advice = "Have the scan's body return less for each step; in a gradient, `jax.checkpoint` of the body computes "
        return f"{advice}again what else is kept of each."
    advice = "Compute the largest array in blocks, by `jax.lax.map(..., batch_size=...)` or a scan over a part of its "
    advice += "rows, so that it never is there as a whole; in a gradient, `jax.checkpoint` computes it again instead "
    return f"{advice}of keeping it."


_FEWEST_SAVED = 256 << 20  # that recomputing would spare: it costs time, about a third of a training step
_SHARE_OF_LIMIT = 0.25  # from which less is worth a word too
_SHARE_OF_PEAK = 0.5
_SHARE_WHERE_TOO_MUCH = 0.15


class Residuals(NamedTuple):  # what a forward scan keeps for its backward scan
    line: Line  # of the forward scan
    length: int  # how many steps it has
    bytes: int  # of all steps
    kept_bytes: int  # that remain with `jax.checkpoint`: the carries that the same arrays are computed from again

    @property
    def saved_bytes(self) -> int:
        return self.bytes - self.kept_bytes

    @property
    def chunk(self) -> int:
        """How many steps of a chunk need the least memory."""
        return max(1, math.isqrt(self.length))

    @property
    def chunked_bytes(self) -> int:
        """What remains where whole chunks are computed again: the carries between them, and all of one chunk."""
        return (self.kept_bytes * -(-self.length // self.chunk) + self.bytes * self.chunk) // self.length


def find_residuals(examined: Examined) -> Iterator[Finding]:
    if len(examined.equations.named("scan")) < 2:
        return
    limit = told_limit(examined)
    enough = _FEWEST_SAVED if limit is None else min(_FEWEST_SAVED, _SHARE_OF_LIMIT * limit)
    found = [it for program in flat_program(examined).all for it in residuals(program) if it.saved_bytes >= enough]
    peak = peak_bytes(examined) if found else 0
    least = _SHARE_WHERE_TOO_MUCH if limit is not None and peak > limit else _SHARE_OF_PEAK
    for it in found:
        if it.saved_bytes <= least * peak:
            continue
        figures = {"bytes": it.bytes, "saved_bytes": it.saved_bytes, "length": it.length, "peak_bytes": peak}
        of = f"of the {it.length:,} steps of this scan; the program takes {bytes_text(peak)} at once"
        message = f"The gradient keeps {bytes_text(it.bytes)} {of}."
        advice = "Compute them again in the backward pass, by `jax.checkpoint` or `partax.filter_checkpoint` of the "
        advice += f"scan's body, or `remat=True` of `partax.fold`: that keeps {bytes_text(it.kept_bytes)}; a scan over "
        advice += f"chunks of {it.chunk:,} steps, each a checkpointed scan, {bytes_text(it.chunked_bytes)}."
        yield finding_at(it.line, "checkpoint", "medium", message, advice, **figures)


def residuals(program: FlatProgram) -> Iterator[Residuals]:
    """What each forward scan of a program keeps for a backward scan, and for nothing else."""
    for i in program.bodies:
        eqn = program.eqns[i]
        if eqn.primitive.name != "scan":
            continue
        stacked = range(scan_parts(eqn).carries, len(eqn.outvars))
        results = [at for at in stacked if _is_kept(program, eqn, program.writes[i][at])]
        if results:
            length, size = int(eqn.params["length"]), sum(bytes_of(eqn.outvars[at].aval) for at in results)
            body = program.bodies[i][0].program
            yield Residuals(program.line(i), length, size, length * _carried_bytes(eqn, body, results))


def _is_kept(program: FlatProgram, forward: Any, number: int) -> bool:
    """Whether scans backwards go along a result of a scan, and nothing else reads it."""

    def goes_along(i: int) -> bool:
        eqn, params = program.eqns[i], forward.params
        if eqn.primitive.name != "scan" or i not in program.bodies:
            return False
        is_alike = eqn.params["reverse"] != params["reverse"] and eqn.params["length"] == params["length"]
        parts = scan_parts(eqn)
        return is_alike and number not in program.reads[i][: parts.consts + parts.carries]

    uses = program.readers.get(number, ())
    return bool(uses) and number not in program.results and all(map(goes_along, uses))


def _carried_bytes(eqn: Any, body: FlatProgram, results: list[int]) -> int:
    """The bytes of the carries that some results of a scan's body are computed from."""
    needed = {body.results[at] for at in results}
    for reads, writes in zip(reversed(body.reads), reversed(body.writes), strict=True):
        if not needed.isdisjoint(writes):
            needed.update(reads)
    parts = scan_parts(eqn)
    carries = range(parts.consts, parts.consts + parts.carries)
    return sum(bytes_of(eqn.invars[at].aval) for at in carries if body.inputs[at] in needed)


_FEWEST_UNUSED = 4 << 20  # of one argument: a smaller one costs nothing that can be measured
_MOST_OF_IT = 0.5  # of an argument's bytes: a model of which one part is not called is as it should be


def find_unused(examined: Examined) -> Iterator[Finding]:
    if sum(leaf.bytes for leaf in examined.arguments) < _FEWEST_UNUSED:
        return
    program = flat_program(examined)
    used = set(itertools.chain(program.results, itertools.chain.from_iterable(program.reads)))
    used.update(program.inputs[i] for i in examined.forwarded)
    pairs = zip(program.inputs, examined.arguments, strict=True)
    line = definition(examined.function)
    for name, its in grouped(pairs, lambda it: argument_name(it[1].path)).items():
        leaves = [leaf for number, leaf in its if number not in used]
        size, whole = sum(leaf.bytes for leaf in leaves), sum(leaf.bytes for _, leaf in its)
        if size < _FEWEST_UNUSED or size <= _MOST_OF_IT * whole:
            continue
        largest, more = max(leaves, key=lambda leaf: leaf.bytes), len(leaves) - 1
        path, what = name, f"`{name}`"
        if size < whole:
            path = largest.path
            what = f"`{path}` ({array_text(largest.aval)})" + (f" and {more} more arrays of `{name}`" if more else "")
        message = f"Nothing in the program reads {what}, {bytes_text(size)} in all."
        advice = "Leave it out of the call, or use it: the caller keeps it in memory for the call, each array costs "
        advice += "dispatch time, and another shape of it traces the function again."
        yield finding_at(line, "unused", "low", message, advice, path, bytes=size, arrays=len(leaves))
