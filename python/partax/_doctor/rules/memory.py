"""Finds programs that take too much memory at once, and lines that make an array which dwarfs all others."""

import math

from partax._doctor.array_types import bytes_of
from partax._doctor.figures import bytes_text
from partax._doctor.finding import Figures, Finding, finding_at
from partax._doctor.flat_program import flat_program
from partax._doctor.lines import NOWHERE
from partax._doctor.liveness import Buffer, is_spread, live_bytes, memory_limit, peak_bytes, peak_of_xla
from partax._doctor.program import Program

_NEARLY_FULL = 0.8  # XLA's own estimates are off by as much, and the runtime keeps some memory for itself
_FEWEST_BYTES = 1 << 30  # of one array: a smaller one fits into any accelerator
_MANY_TIMES = 4  # what comes in and goes out; activations of common networks stay below
_NAMED = 3


def find(program: Program) -> list[Finding]:
    if is_spread(program) and program.compiled is None:
        return []  # which part of it one device has is not known
    limit = memory_limit(program)
    room = math.inf if limit is None else _NEARLY_FULL * limit
    given = sum(leaf.bytes for leaf in program.arguments) + sum(map(bytes_of, program.jaxpr.consts))
    made = sum(bytes_of(var.aval) for flat in flat_program(program).all for eqn in flat.eqns for var in eqn.outvars)
    if given + made < min(_FEWEST_BYTES, room):
        return []  # even if nothing is freed in between: that is known without a walk
    buffers = [buffer for buffer in live_bytes(program).largest if buffer.line.file]
    around = sum(leaf.bytes for leaf in (*program.arguments, *program.results))
    least = max(_FEWEST_BYTES, _MANY_TIMES * around + 1)
    dwarfing = next((buffer for buffer in buffers if buffer.bytes >= least), None)
    estimate = peak_bytes(program)
    if estimate <= room and dwarfing is None:
        return []
    of_xla = peak_of_xla(program)
    peak = estimate if of_xla is None else of_xla
    if limit is not None and peak > room:
        return [_too_much(peak, of_xla is not None, limit, buffers)]
    if dwarfing is not None and (of_xla is None or of_xla >= dwarfing.bytes):
        verb, size = "may make" if of_xla is None else "makes", bytes_text(dwarfing.bytes)
        figures = {"largest_bytes": dwarfing.bytes, "argument_and_result_bytes": around, "peak_bytes": peak}
        takes = f"which takes {size}; all arguments and results take {bytes_text(around)}"
        message = f"This line {verb} {dwarfing.type}, {takes}."
        return [finding_at(dwarfing.line, "memory", "medium", message, _advice(dwarfing), **figures)]
    return []


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
    if buffer.primitive == "scan":
        advice = "Have the scan's body return less for each step; in a gradient, `jax.checkpoint` of the body computes "
        return f"{advice}again what else is kept of each."
    advice = "Compute the largest array in blocks, by `jax.lax.map(..., batch_size=...)` or a scan over a part of its "
    advice += "rows, so that it never is there as a whole; in a gradient, `jax.checkpoint` computes it again instead "
    return f"{advice}of keeping it."
