"""Finds what the gradient of a scan keeps of each step, where computing it again would save much memory."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from partax._doctor.array_types import bytes_of
from partax._doctor.figures import bytes_text
from partax._doctor.finding import Finding, finding_at
from partax._doctor.flat_program import FlatProgram, flat_program, scan_parts
from partax._doctor.lines import Line
from partax._doctor.liveness import memory_limit, peak_bytes
from partax._doctor.program import Program

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


def find(program: Program) -> list[Finding]:
    limit = memory_limit(program, of_host=False)
    enough = _FEWEST_SAVED if limit is None else min(_FEWEST_SAVED, _SHARE_OF_LIMIT * limit)
    large = [it for flat in flat_program(program).all for it in _residuals(flat) if it.saved_bytes >= enough]
    peak = peak_bytes(program) if large else 0
    least = _SHARE_WHERE_TOO_MUCH if limit is not None and peak > limit else _SHARE_OF_PEAK
    findings: list[Finding] = []
    for it in large:
        if it.saved_bytes <= least * peak:
            continue
        figures = {"bytes": it.bytes, "saved_bytes": it.saved_bytes, "length": it.length, "peak_bytes": peak}
        of = f"of the {it.length:,} steps of this scan; the program takes {bytes_text(peak)} at once"
        message = f"The gradient keeps {bytes_text(it.bytes)} {of}."
        advice = "Compute them again in the backward pass, by `jax.checkpoint` or `partax.filter_checkpoint` of the "
        advice += f"scan's body, or `remat=True` of `partax.scan_layers`: that keeps {bytes_text(it.kept_bytes)}; a scan over "
        advice += f"chunks of {math.isqrt(it.length):,} steps, each a checkpointed scan, keeps less."
        findings.append(finding_at(it.line, "checkpoint", "medium", message, advice, **figures))
    return findings


def _residuals(flat: FlatProgram) -> Iterator[Residuals]:
    """What each forward scan of a program keeps for a backward scan, and for nothing else."""
    for i in flat.bodies:
        eqn = flat.eqns[i]
        if eqn.primitive.name != "scan":
            continue
        stacked = range(scan_parts(eqn).carries, len(eqn.outvars))
        results = [at for at in stacked if _is_kept(flat, eqn, flat.writes[i][at])]
        if results:
            length, size = int(eqn.params["length"]), sum(bytes_of(eqn.outvars[at].aval) for at in results)
            body = flat.bodies[i][0].program
            yield Residuals(flat.line(i), length, size, length * _carried_bytes(eqn, body, results))


def _is_kept(flat: FlatProgram, forward: Any, number: int) -> bool:
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
    """The bytes of the carries that some results of a scan's body are computed from."""
    needed = {body.results[at] for at in results}
    for reads, writes in zip(reversed(body.reads), reversed(body.writes), strict=True):
        if not needed.isdisjoint(writes):
            needed.update(reads)
    parts = scan_parts(eqn)
    carries = range(parts.consts, parts.consts + parts.carries)
    return sum(bytes_of(eqn.invars[at].aval) for at in carries if body.inputs[at] in needed)
