"""Finds large arguments that nothing in the program reads."""

import itertools
from collections.abc import Iterator

from partax._doctor.examined import Examined, argument_name, definition
from partax._doctor.finding import Finding, finding_at
from partax._doctor.flat_program import flat_program
from partax._doctor.lines import grouped
from partax._pytree.array_text import array_text
from partax._report.figure_text import bytes_text

_FEWEST_BYTES = 4 << 20  # of one argument: a smaller one costs nothing that can be measured
_MOST_OF_IT = 0.5  # of an argument's bytes: a model of which one part is not called is as it should be


def find(examined: Examined) -> Iterator[Finding]:
    if sum(leaf.bytes for leaf in examined.arguments) < _FEWEST_BYTES:
        return
    program = flat_program(examined)
    used = set(itertools.chain(program.results, itertools.chain.from_iterable(program.reads)))
    used.update(program.inputs[i] for i in examined.forwarded)
    pairs = zip(program.inputs, examined.arguments, strict=True)
    line = definition(examined.function)
    for name, its in grouped(pairs, lambda it: argument_name(it[1].path)).items():
        leaves = [leaf for number, leaf in its if number not in used]
        size, whole = sum(leaf.bytes for leaf in leaves), sum(leaf.bytes for _, leaf in its)
        if size < _FEWEST_BYTES or size <= _MOST_OF_IT * whole:
            continue
        largest, more = max(leaves, key=lambda leaf: leaf.bytes), len(leaves) - 1
        path, what = name, f"`{name}`"
        if size < whole:
            path = largest.path
            what = f"`{path}` ({array_text(largest.aval)})" + (f" and {more} more arrays of `{name}`" if more else "")
        message = f"Nothing in the program reads {what}, {bytes_text(size)} in all."
        advice = (
            "Leave it out of the call, or use it: the caller keeps it in memory for the call, each array costs "
            "dispatch time, and another shape of it traces the function again."
        )
        yield finding_at(line, "unused", "low", {"bytes": size, "arrays": len(leaves)}, message, advice, path)
