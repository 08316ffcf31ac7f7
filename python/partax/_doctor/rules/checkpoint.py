"""Finds what the gradient of a scan keeps of each step, where computing it again would save much memory."""

import math
from collections.abc import Iterator

from partax._doctor.figures import bytes_of, bytes_text
from partax._doctor.finding import Finding, finding_at
from partax._doctor.flat_program import Operation, every_operation, scan_parts
from partax._doctor.liveness import peak_bytes
from partax._doctor.program import Program

_FEWEST_SAVED = 256 << 20  # that recomputing would spare: it costs time, about a third of a training step
_SHARE_OF_PEAK = 0.5


def find(program: Program) -> Iterator[Finding]:
    for scan in every_operation(program):
        if scan.name == "scan":
            size, carried = _residual_bytes(scan)
            if size - carried >= max(_FEWEST_SAVED, _SHARE_OF_PEAK * peak_bytes(program)):
                yield _finding(scan, size, carried, peak_bytes(program))


def _finding(scan: Operation, size: int, carried: int, peak: int) -> Finding:
    length = int(scan.eqn.params["length"])
    message = f"The gradient keeps {bytes_text(size)} of the {length:,} steps of this scan; the program takes "
    message += f"{bytes_text(peak)} at once."
    advice = "Compute them again in the backward pass, by `jax.checkpoint` or `partax.filter_checkpoint` of the scan's "
    advice += f"body, or `remat=True` of `partax.scan_layers`: that keeps {bytes_text(carried)}; a scan over chunks of "
    advice += f"{math.isqrt(length):,} steps, each a checkpointed scan, keeps less."
    figures = {"bytes": size, "saved_bytes": size - carried, "length": length, "peak_bytes": peak}
    return finding_at(scan.line, "checkpoint", "medium", message, advice, **figures)


def _residual_bytes(scan: Operation) -> tuple[int, int]:
    """The bytes that a scan keeps for a scan backwards and for nothing else, and those that remain with
    `jax.checkpoint`: of the carries, from which the others are computed again.
    """
    eqn, body = scan.eqn, scan.bodies[0].program
    count_consts, count_carries = scan_parts(eqn)
    results = [i for i in range(count_carries, len(eqn.outvars)) if _is_residual(scan, scan.writes[i])]
    needs = {body.results[i] for i in results}
    for operation in reversed(body.operations):
        if not needs.isdisjoint(operation.writes):
            needs.update(operation.reads)
    carries = range(count_consts, count_consts + count_carries)
    carried = sum(bytes_of(eqn.invars[i].aval) for i in carries if body.inputs[i] in needs)
    return sum(bytes_of(eqn.outvars[i].aval) for i in results), int(eqn.params["length"]) * carried


def _is_residual(scan: Operation, number: int) -> bool:
    """Whether scans backwards go along a result of a scan, and nothing else reads it."""

    def goes_along(reader: Operation) -> bool:
        if reader.name != "scan":
            return False
        params, forward = reader.eqn.params, scan.eqn.params
        is_alike = params["reverse"] != forward["reverse"] and params["length"] == forward["length"]
        return is_alike and number not in reader.reads[: sum(scan_parts(reader.eqn))]

    program = scan.call.program
    uses = program.readers.get(number, ())
    return bool(uses) and number not in program.results and all(map(goes_along, uses))
