"""Finds what the gradient of a scan keeps of each step, where computing it again would save much memory."""

import math
from collections.abc import Iterator
from typing import Any

from partax._doctor.array_types import bytes_of
from partax._doctor.figures import bytes_text
from partax._doctor.finding import Finding, finding_at
from partax._doctor.flat_program import FlatProgram, places_of, scan_parts
from partax._doctor.lines import Line
from partax._doctor.liveness import peak_bytes
from partax._doctor.program import Program

_FEWEST_SAVED = 256 << 20  # that recomputing would spare: it costs time, about a third of a training step
_SHARE_OF_PEAK = 0.5


def find(program: Program) -> Iterator[Finding]:
    for flat, i in places_of(program, "scan"):
        size, carried = _residual_bytes(flat, i)
        if size - carried >= _FEWEST_SAVED and size - carried > _SHARE_OF_PEAK * peak_bytes(program):
            yield _finding(flat.line(i), int(flat.eqns[i].params["length"]), size, carried, peak_bytes(program))


def _finding(line: Line, length: int, size: int, carried: int, peak: int) -> Finding:
    message = f"The gradient keeps {bytes_text(size)} of the {length:,} steps of this scan; the program takes "
    message += f"{bytes_text(peak)} at once."
    advice = "Compute them again in the backward pass, by `jax.checkpoint` or `partax.filter_checkpoint` of the scan's "
    advice += f"body, or `remat=True` of `partax.scan_layers`: that keeps {bytes_text(carried)}; a scan over chunks of "
    advice += f"{math.isqrt(length):,} steps, each a checkpointed scan, keeps less."
    figures = {"bytes": size, "saved_bytes": size - carried, "length": length, "peak_bytes": peak}
    return finding_at(line, "checkpoint", "medium", message, advice, **figures)


def _residual_bytes(flat: FlatProgram, i: int) -> tuple[int, int]:
    """The bytes that a scan keeps for a scan backwards and for nothing else, and those that remain with
    `jax.checkpoint`: of the carries, from which the others are computed again.
    """
    eqn = flat.eqns[i]
    stacked = range(scan_parts(eqn).carries, len(eqn.outvars))
    results = [at for at in stacked if _is_residual(flat, eqn, flat.writes[i][at])]
    carried = int(eqn.params["length"]) * _carried_bytes(eqn, flat.bodies[i][0].program, results)
    return sum(bytes_of(eqn.outvars[at].aval) for at in results), carried


def _is_residual(flat: FlatProgram, forward: Any, number: int) -> bool:
    """Whether scans backwards go along a result of a scan, and nothing else reads it."""

    def goes_along(i: int) -> bool:
        eqn, params = flat.eqns[i], forward.params
        if eqn.primitive.name != "scan" or i not in flat.bodies:
            return False
        is_alike = eqn.params["reverse"] != params["reverse"] and eqn.params["length"] == params["length"]
        parts = scan_parts(eqn)
        return is_alike and number not in flat.reads[i][: parts.consts + parts.carries]

    uses = flat.readers.get(number, ())
    return bool(uses) and number not in flat.results and all(map(goes_along, uses))


def _carried_bytes(eqn: Any, body: FlatProgram, results: list[int]) -> int:
    needs = {body.results[at] for at in results}
    for reads, writes in zip(reversed(body.reads), reversed(body.writes), strict=True):
        if not needs.isdisjoint(writes):
            needs.update(reads)
    parts = scan_parts(eqn)
    carries = range(parts.consts, parts.consts + parts.carries)
    return sum(bytes_of(eqn.invars[at].aval) for at in carries if body.inputs[at] in needs)
