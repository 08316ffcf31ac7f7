"""Which arrays of the arguments a program updates, as a training step does with its model."""

from typing import Any

from partax._doctor.flat_program import ELEMENTWISE, IN_PLACE, LOOPS, FlatProgram, flat_program, scan_parts
from partax._doctor.program import Leaf, Program
from partax._families.objects import cached_by_identity

_MOST_ORIGINS = 8  # arguments that are noted of one value: Adam's new weights come from three


@cached_by_identity
def updates_of(program: Program) -> list[tuple[Leaf, Any]]:
    """The arrays from which an output of the same shape is computed, element by element, each with the output's type.
    What is returned unchanged is not among them.
    """
    flat = flat_program(program)
    leaves = dict(zip(flat.inputs, program.arguments, strict=True))
    origins = _origins(flat, {number: leaf.aval.shape for number, leaf in leaves.items()})
    outputs = [pair for pair in zip(flat.results, program.jaxpr.out_avals, strict=True) if pair[0] not in leaves]
    updates: dict[int, tuple[Leaf, Any]] = {}
    for number, aval in sorted(outputs, key=lambda pair: len(origins[pair[0]])):  # first what has one origin
        origin = next((origin for origin in origins[number] if origin not in updates), None)
        if origin is not None:
            updates[origin] = leaves[origin], aval
    return [updates[origin] for origin in sorted(updates)]


def _origins(flat: FlatProgram, shapes: dict[int, Any]) -> list[tuple[int, ...]]:
    """For each value the inputs of its shape that it is computed from, element by element."""
    origins: list[tuple[int, ...]] = [()] * (flat.values + 1)  # and last of literals, which come from none
    for number in flat.inputs:
        origins[number] = (number,)
    for operation in flat.operations:
        eqn, reads, writes, *_ = operation
        if operation.treatment in (*ELEMENTWISE, IN_PLACE) or operation.name == "cond":
            together = tuple(dict.fromkeys(origin for number in reads for origin in origins[number]))
            sources = [together] * len(writes)
        elif operation.name in LOOPS:
            is_while = operation.name == "while"
            consts = eqn.params["cond_nconsts"] + eqn.params["body_nconsts"] if is_while else scan_parts(eqn)[0]
            sources = [origins[number] for number in reads[int(consts) :]]
        else:
            continue
        for number, var, inputs in zip(writes, eqn.outvars, sources, strict=False):
            origins[number] = tuple([origin for origin in inputs if shapes[origin] == var.aval.shape][:_MOST_ORIGINS])
    return origins
