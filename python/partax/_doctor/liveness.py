"""How much memory a program needs: estimated by a walk over its equations, or as XLA has it; and how much there is."""

import heapq
import os
from operator import itemgetter
from typing import Any, NamedTuple

import jax

from partax._doctor import flat_program as flat
from partax._doctor.figures import bytes_of
from partax._doctor.lines import Line
from partax._doctor.program import Program
from partax._families.objects import cached_by_identity
from partax._pytree.short_text import array_text

_LARGEST = 16  # buffers that are named of those at the peak
_READS_WITHOUT_BUFFER = (*flat.ELEMENTWISE, flat.REDUCE)
_WRITES_OVER = (*flat.ELEMENTWISE, flat.IN_PLACE)


class Buffer(NamedTuple):  # an array that a program makes
    type: str  # dtype and shape, such as `float32[1000,10]`
    bytes: int
    line: Line


class Liveness(NamedTuple):
    peak: int  # the most bytes that live at once in a program
    largest: list[Buffer]  # that are there then, the largest first


@cached_by_identity
def live_bytes(program: Program) -> Liveness:
    """An argument lives to the end, or to its last use if it is donated; a result to the end; all else to its last use.
    What XLA fuses needs no memory: an elementwise result that only elementwise operations and reductions read.
    """
    outermost = flat.flat_program(program)
    leaves = list(zip(outermost.inputs, program.arguments, strict=True))
    donated = {number: leaf.bytes for number, leaf in leaves if leaf.donated}
    always = sum(leaf.bytes for _, leaf in leaves if not leaf.donated)
    return _walk(outermost, always + sum(map(bytes_of, outermost.constants.values())), donated)


@cached_by_identity
def _live_inside(program: flat.FlatProgram) -> Liveness:
    return _walk(program, 0, {})


def _walk(program: flat.FlatProgram, always: int, inputs: dict[int, int]) -> Liveness:
    """Add up what lives: what does so `always`, and inputs until their last use, their bytes by number."""
    is_branch = program.call.eqn is not None and program.call.eqn.primitive.name not in flat.LOOPS
    last, is_fused = _last_uses(program)
    count = len(program.operations)
    ends = [0] * (count + 1)  # the bytes that each operation is the last to need
    for number, size in inputs.items():
        ends[max(last[number], 0)] += size
    live = always + sum(inputs.values())
    peak, at, largest_inside = live, 0, list[Buffer]()
    arrays: list[tuple[int, int, int, Any]] = []  # bytes, the operation that makes it, the last that reads it, type
    for i, operation in enumerate(program.operations):
        if not is_fused[i]:
            new = 0
            for number, var in zip(operation.writes, operation.eqn.outvars, strict=True):
                end = last[number]
                if end >= 0 and (end < count or not is_branch):  # the results of a branch are its caller's
                    size = bytes_of(var.aval)
                    new += size
                    ends[end] += size
                    arrays.append((size, i, end, var.aval))
            live += new
            bodies = [_live_inside(body.program) for body in operation.bodies]
            inside = max(bodies, key=lambda body: body.peak, default=Liveness(0, []))
            # What is read for the last time may be written over.
            may_write_over = operation.treatment in _WRITES_OVER or operation.name in flat.LOOPS
            most = live - (min(new, ends[i]) if may_write_over else 0) + inside.peak
            if most > peak:
                peak, at, largest_inside = most, i, inside.largest
        live -= ends[i]
    at_peak = heapq.nlargest(_LARGEST, (array for array in arrays if array[1] <= at <= array[2]), key=itemgetter(0))
    buffers = [Buffer(array_text(aval), size, program.operations[i].line) for size, i, _, aval in at_peak]
    return Liveness(peak, heapq.nlargest(_LARGEST, [*buffers, *largest_inside], key=lambda buffer: buffer.bytes))


def _last_uses(program: flat.FlatProgram) -> tuple[list[int], bytearray]:
    """Return the last reader of each value (-1: none, `count`: a result), and which operations are fused or unused."""
    count = len(program.operations)
    last = [-1] * program.values
    is_buffer = bytearray(program.values)  # what must be there as a whole
    is_read_twice = bytearray(program.values)
    is_fused = bytearray(count)
    for number in program.results:
        if number != flat.LITERAL:
            last[number] = count
            is_buffer[number] = 1
    for i in range(count - 1, -1, -1):
        operation = program.operations[i]
        writes, treatment = operation.writes, operation.treatment
        end = max([last[number] for number in writes], default=-1)
        if end < 0 and not operation.eqn.effects:
            is_fused[i] = 1  # nothing needs it
            continue
        reads_buffers = treatment not in _READS_WITHOUT_BUFFER
        if treatment == flat.VIEW and end < count:
            is_fused[i], reads_buffers = 1, is_buffer[writes[0]]
        elif treatment in flat.ELEMENTWISE and not (
            any(is_buffer[number] for number in writes) or (treatment == flat.COSTLY and is_read_twice[writes[0]])
        ):
            is_fused[i] = 1
        else:
            end = i
        for number in operation.reads:
            if number != flat.LITERAL:
                is_read_twice[number] = last[number] >= 0
                last[number] = max(last[number], end)
                is_buffer[number] |= bool(reads_buffers)
    return last, is_fused


def peak_bytes(program: Program) -> int:
    """The most bytes that live at once: XLA's figure where the program is compiled, else an estimate."""
    memory = program.compiled and program.compiled.memory_analysis()
    if not memory:
        return live_bytes(program).peak
    size = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return size - memory.alias_size_in_bytes


def memory_limit(program: Program) -> int | None:
    """Return the bytes that a program may need: what the user says, or the device has, or the host; None if unknown."""
    if program.memory_limit is not None:
        return program.memory_limit
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        return (device.memory_stats() or {}).get("bytes_limit")
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not of this system
        return None


def is_spread(program: Program) -> bool:
    shardings = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves((program.args, program.kwargs)))
    return any(len(getattr(sharding, "device_set", ())) > 1 for sharding in shardings)
