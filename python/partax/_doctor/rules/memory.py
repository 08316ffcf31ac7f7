"""Finds programs that take too much memory at once, with the line of the largest array."""

from collections.abc import Iterator

from partax._doctor.figures import bytes_of, bytes_text
from partax._doctor.finding import Figures, Finding, finding_at
from partax._doctor.flat_program import every_operation
from partax._doctor.lines import NOWHERE
from partax._doctor.liveness import is_spread, live_bytes, memory_limit, peak_bytes
from partax._doctor.program import Program

_NEARLY_FULL = 0.8  # the estimate is off by as much, and the runtime keeps some memory for itself
_LISTED = 3
_IN_BLOCKS = (
    "Compute the largest array in blocks, by `jax.lax.map(..., batch_size=...)` or a scan over a part of its rows; in "
    "a gradient, `jax.checkpoint` computes it again instead of keeping it."
)


def find(program: Program) -> Iterator[Finding]:
    limit = memory_limit(program)
    if limit is None or (is_spread(program) and program.compiled is None):
        return  # which part of an array one of several devices has is unknown
    written = [var.aval for operation in every_operation(program) for var in operation.eqn.outvars]
    if sum(map(bytes_of, [*program.jaxpr.in_avals, *program.jaxpr.consts, *written])) < _NEARLY_FULL * limit:
        return  # even if nothing is freed in between: that takes no walk
    peak = peak_bytes(program)
    if peak <= _NEARLY_FULL * limit:
        return
    share = f"{peak / limit:.0%} of" if peak <= limit else "more than"
    takes = "may take {} at once (an estimate)" if program.compiled is None else "takes {} at once (XLA's figure)"
    message = f"The program {takes.format(bytes_text(peak))}, {share} the {bytes_text(limit)} that there are"
    figures: Figures = {"peak_bytes": peak, "limit_bytes": limit, "share": min(peak / limit, 1.0)}
    line, advice = NOWHERE, "Pass smaller arguments, or donate those that the result replaces."
    if buffers := [buffer for buffer in live_bytes(program).largest if buffer.line.file]:
        texts = [f"{buffer.type} ({bytes_text(buffer.bytes)}) at {buffer.line.place}" for buffer in buffers[:_LISTED]]
        message += f"; the largest arrays that it makes: {', '.join(texts)}"
        figures["largest_bytes"] = buffers[0].bytes
        line, advice = buffers[0].line, _IN_BLOCKS
    yield finding_at(line, "memory", "high" if peak > limit else "medium", message + ".", advice, **figures)
