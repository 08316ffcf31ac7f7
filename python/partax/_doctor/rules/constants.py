"""Finds arrays that a program has captured, and operations on them that XLA evaluates while it compiles.

The seconds that its slow evaluator takes are measured: `x * operation(captured)` of 10,000 to 40,000,000 elements,
compiled once for the CPU on two shared cores. They say seconds or minutes, no more.
"""

import math
from collections.abc import Iterator
from typing import Any

from partax._doctor.captured_arrays import Holder, holders
from partax._doctor.figures import bytes_of, bytes_text, seconds_text
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.flat_program import ELEMENTWISE, LITERAL, FlatProgram, Operation, flat_program
from partax._doctor.lines import Line, group_by
from partax._doctor.program import Program
from partax._pytree.short_text import array_text

# Of all arrays of a variable: each program has its own copy, and XLA takes 18 ms for each MiB.
_FEWEST_BYTES = 1 << 20
_HIGH_BYTES = 64 << 20  # from which it takes a second
# From which XLA itself warns ("Constant folding an instruction is taking > 1s").
_FEWEST_SECONDS = 1.0
_HIGH_SECONDS = 10.0


Captured = tuple[Any, Line]  # an array, and the line of the first equation that uses it


def find(program: Program) -> Iterator[Finding]:
    by_id, folded = dict[int, Captured](), dict[Line, Finding]()
    _read(flat_program(program), {}, by_id, folded)
    captured = sorted(by_id.values(), key=lambda pair: -bytes_of(pair[0]))
    variables = holders([array for array, _ in captured], program.function)
    groups = group_by(zip(captured, variables, strict=True), lambda pair: pair[1][:2] if pair[1] else pair[0][1])
    findings = [_of_variable(program, [captured for captured, _ in group], group[0][1]) for group in groups.values()]
    yield from (finding for finding in findings if int(finding.figures["bytes"]) >= _FEWEST_BYTES)
    yield from folded.values()


# What the value of a number is, if it depends on no argument: a captured array, or one of these.
_COMPUTED = object()  # from captured arrays
_FILLED = object()  # the same number in all places, like `jnp.ones`


def _read(
    flat: FlatProgram, values: dict[int, Any], captured: dict[int, Captured], folded: dict[Line, Finding]
) -> None:
    """Adds what a program has captured, by the id of the array, and what XLA evaluates while it compiles. `values` are
    those of its numbers that depend on no argument.
    """
    values |= {**flat.constants, LITERAL: _FILLED}
    for operation in flat.operations:
        eqn, reads, writes, _, bodies = operation
        operands = [values.get(number) for number in reads]
        for number, value in zip(reads, operands, strict=True):
            is_array = value is not None and value is not _COMPUTED and value is not _FILLED
            if is_array and id(value) not in captured and not any(number in body.operands for body in bodies):
                captured[id(value)] = value, operation.line
        for body in bodies:
            pairs = zip(body.program.inputs, body.operands, strict=True)
            inputs = {number: values[outer] for number, outer in pairs if outer in values}
            _read(body.program, inputs, captured, folded)
        if any(value is None for value in operands) or bodies or not operands or eqn.effects:
            continue
        is_filled = all(value is _FILLED for value in operands)
        seconds = _evaluation_seconds(operation, is_filled)
        if seconds is not None:
            values.update(dict.fromkeys(writes, _COMPUTED if seconds or not is_filled else _FILLED))
        if seconds is not None and seconds >= _FEWEST_SECONDS:
            folded.setdefault(operation.line, _evaluated(operation, seconds))


def _of_variable(program: Program, arrays: list[Captured], holder: Holder | None) -> Finding:
    count, size = len(arrays), sum(bytes_of(array) for array, _ in arrays)
    what = f"{array_text(arrays[0][0]) if count == 1 else f'{count} arrays'} ({bytes_text(size)})"
    name, path, message = "it", "", f"the program has captured {what}"
    if holder is not None:
        path = holder.name if count == 1 else holder.root
        name, message = f"`{path}`", f"{holder.kind} `{path}` holds {what}, which the program has captured"
    message += ": it is compiled in as a constant"
    advice = f"pass {name} as an argument of `{program.name}`, or make it a part of the model that is one: then "
    advice += "programs share it, and a new value needs no new trace"
    severity: Severity = "high" if size >= _HIGH_BYTES else "medium"
    return finding_at(arrays[0][1], "constant", severity, message, advice, path, bytes=size, arrays=count)


def _evaluated(operation: Operation, seconds: float) -> Finding:
    message = f"`{operation.name}` of {array_text(operation.eqn.invars[0].aval)} depends on no argument: XLA evaluates "
    message += f"it while it compiles, which takes about {seconds_text(float(f'{seconds:.1g}'))}"
    advice = "compute it once outside of the function and pass the result as an argument, or pass the array that "
    advice += "it is computed from: what depends on an argument is not evaluated by the compiler"
    severity: Severity = "high" if seconds >= _HIGH_SECONDS else "medium"
    return finding_at(operation.line, "constant", severity, message, advice, folding_seconds=round(seconds, 2))


# Larger results XLA leaves to be computed when the program runs (`kMaximumConstantSizeElements`).
_LARGEST = 45_000_000
# The seconds for an element of the operand, by how the name of the primitive begins. XLA adds floats by a loop of its
# own, next to nothing; it calls its evaluator for each element of the others.
_ELEMENT_SECONDS = {
    "cum": 29e-6,  # 1e5 elements take 2.9 s
    "arg": 7e-6,  # an `argmax` of 6e5 takes 3.7 s, of 8e6 58 to 77 s
    "reduce_sum": 0.0,
    "reduce_": 1.6e-6,  # a maximum of 8e6 takes 13 to 15 s, `all` of 1e6 1 to 1.7 s
}


def _evaluation_seconds(operation: Operation, is_filled: bool) -> float | None:
    """How long XLA takes to evaluate an operation, about: next to nothing where that is elementwise; None where XLA
    leaves it to the run, as what a library computes. Of filled arrays it evaluates windows alone.
    """
    name, eqn = operation.name, operation.eqn
    operand, result = eqn.invars[0].aval, eqn.outvars[0].aval
    size = math.prod(operand.shape)
    if max(size, math.prod(result.shape)) > _LARGEST:
        return None
    if operation.treatment in ELEMENTWISE:
        return 0.0
    if name.startswith("reduce_window"):  # a 3 x 3 window over 1e5 elements takes 3.7 s
        return math.prod(result.shape) * math.prod(eqn.params["window_dimensions"]) * 4e-6
    if is_filled:
        return None
    if name == "sort":  # 4e3 elements take 0.8 s, 1e4 5.8 s, 1e5 45 s
        return size * math.log2(max(operand.shape[eqn.params["dimension"]], 2)) * 25e-6
    if name == "dot_general":  # 3162 x 3162 takes 10 s
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return math.prod(result.shape) * math.prod(operand.shape[axis] for axis in contracted) * 0.35e-9
    return next((size * each for begin, each in _ELEMENT_SECONDS.items() if name.startswith(begin)), None)
