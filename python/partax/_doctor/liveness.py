"""How much memory a program takes: estimated by a walk over its equations, or as XLA has it; and how much there is."""

import heapq
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from partax._doctor import flat_program as flat
from partax._doctor.array_types import bytes_of
from partax._doctor.lines import Line
from partax._doctor.program import Program, kept
from partax._pytree.short_text import array_text

_LARGEST = 16  # buffers that are named of those at the peak
_READS_AS_MADE = (*flat.ELEMENTWISE, flat.REDUCE)
_WRITES_OVER = (*flat.ELEMENTWISE, flat.IN_PLACE)


class Buffer(NamedTuple):
    """An array that a program makes."""

    type: str  # dtype and shape, such as `float32[1000,10]`
    bytes: int
    primitive: str
    line: Line


class Liveness(NamedTuple):
    """The most bytes that live at once in a program, and what that makes of them, the largest first."""

    peak: int
    largest: list[Buffer]


@kept
def live_bytes(program: Program) -> Liveness:
    """The live bytes along a program. Time and memory grow linearly with the equations.

    An argument lives to the end, or to its last use if it is donated; a result to the end; all else to its last use.
    What XLA fuses takes nothing: an elementwise result that only elementwise operations and reductions read.
    """
    outermost = flat.flat_program(program)
    leaves = list(zip(outermost.inputs, program.arguments, strict=True))
    donated = {number: leaf.bytes for number, leaf in leaves if leaf.donated}
    always = sum(leaf.bytes for _, leaf in leaves if not leaf.donated)
    return _walk(outermost, {}, always + sum(map(bytes_of, outermost.constants.values())), donated)


def _walk(
    program: flat.FlatProgram,
    inner: dict[int, Liveness],
    always: int = 0,
    inputs: Mapping[int, int] = MappingProxyType({}),
) -> Liveness:
    """Adds up what lives: what does so `always`, and inputs until their last use, their bytes by number. `inner` has
    the programs inside of equations, by their ids.
    """
    for body in (body for bodies in program.bodies.values() for body in bodies):
        if id(body.program) not in inner:
            inner[id(body.program)] = _walk(body.program, inner)
    is_branch = program.eqn is not None and program.eqn.primitive.name not in flat.LOOPS  # its results are its caller's
    last, is_fused = _last_uses(program)
    count = len(program.eqns)
    freed = [0] * (count + 1)
    for number, size in inputs.items():
        freed[max(last[number], 0)] += size
    live = always + sum(inputs.values())
    peak, at = live, 0
    made: list[tuple[int, int, int, Any]] = []  # bytes, the equation that makes it, the last that reads it, type
    for i, eqn in enumerate(program.eqns):
        if not is_fused[i]:
            new = 0
            for number, var in zip(program.writes[i], eqn.outvars, strict=True):
                end = last[number]
                if end >= 0 and (end < count or not is_branch):
                    size = bytes_of(var.aval)
                    new += size
                    freed[end] += size
                    made.append((size, i, end, var.aval))
            live += new
            inside = max((inner[id(body.program)].peak for body in program.bodies.get(i, ())), default=0)
            # What is read for the last time may be written over.
            may_write_over = program.treatments[i] in _WRITES_OVER or eqn.primitive.name in flat.LOOPS
            most = live - (min(new, freed[i]) if may_write_over else 0) + inside
            if most > peak:
                peak, at = most, i
        live -= freed[i]
    at_peak = heapq.nlargest(_LARGEST, (it for it in made if it[1] <= at <= it[2]), key=lambda it: it[0])
    buffers = [
        Buffer(array_text(aval), size, program.eqns[i].primitive.name, program.line(i)) for size, i, _, aval in at_peak
    ]
    if bodies := program.bodies.get(at):
        buffers += max((inner[id(body.program)] for body in bodies), key=lambda it: it.peak).largest
    return Liveness(peak, heapq.nlargest(_LARGEST, buffers, key=lambda it: it.bytes))


def _last_uses(program: flat.FlatProgram) -> tuple[list[int], bytearray]:
    """What reads each value last (-1: nothing, the number of equations: a result), and what is fused or unused."""
    count = len(program.eqns)
    last = [-1] * program.values
    is_buffer = bytearray(program.values)  # what must be there as a whole
    is_result = bytearray(program.values)
    is_read_twice = bytearray(program.values)
    is_fused = bytearray(count)
    for number in program.results:
        if number != flat.LITERAL:
            last[number] = count
            is_buffer[number] = is_result[number] = 1
    for i in range(count - 1, -1, -1):
        made, treatment = program.writes[i], program.treatments[i]
        number = made[0] if made else flat.LITERAL
        end = max([last[number] for number in made], default=-1)
        if end < 0 and not program.eqns[i].effects:
            is_fused[i] = 1  # nothing needs it
            continue
        reads_buffers = treatment not in _READS_AS_MADE
        if treatment == flat.VIEW and not is_result[number]:
            is_fused[i], reads_buffers = 1, is_buffer[number]
        elif treatment in flat.ELEMENTWISE and not (
            is_buffer[number] or (treatment == flat.COSTLY and is_read_twice[number])
        ):
            is_fused[i] = len(made) == 1 or not any(is_buffer[number] for number in made)
            end = end if is_fused[i] else i
        else:
            end = i
        for number in program.reads[i]:
            if number != flat.LITERAL:
                is_read_twice[number] = last[number] >= 0
                last[number] = max(last[number], end)
                is_buffer[number] |= bool(reads_buffers)
    return last, is_fused


_SOON_COMPILED = 200  # equations
_SOON_COMPILED_BYTES = 16 << 20  # of captured arrays


def peak_bytes(program: Program) -> int:
    """The most bytes that live at once: XLA's figure where the program is compiled, else an estimate."""
    peak = _peak_of(program.compiled)
    return live_bytes(program).peak if peak is None else peak


def peak_of_xla(program: Program) -> int | None:
    """XLA's figure, if the program is compiled or can be in little time; None otherwise."""
    captured = sum(map(bytes_of, program.jaxpr.consts))
    is_small = flat.flat_program(program).size <= _SOON_COMPILED and captured <= _SOON_COMPILED_BYTES
    if program.compiled is None and program.traced is not None and is_small and jax.default_backend() == "cpu":
        try:
            return _peak_of(program.traced.lower().compile())
        except Exception:  # what needs its own devices or handlers
            return None
    return _peak_of(program.compiled)


def _peak_of(compiled: Any) -> int | None:
    """XLA's figure; None where it has none, or nothing is compiled."""
    memory = compiled and compiled.memory_analysis()
    if not memory or (jax.default_backend() == "cpu" and _hides_buffers(compiled.as_text())):
        return None
    taken = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return taken - memory.alias_size_in_bytes


def _hides_buffers(hlo: str) -> bool:
    """Whether a library of the CPU (YNNPACK) has buffers that XLA does not count, as in attention."""
    inner = "\n".join(part for part in hlo.split("\n\n") if not part.startswith("ENTRY"))
    return "kind=kCustom" in hlo and any(" dot(" in line and "ROOT" not in line for line in inner.splitlines())


def memory_limit(program: Program, of_host: bool = True) -> int | None:
    """The bytes that a program may take: what the user says, or the device has, or the host; None if unknown."""
    device = jax.local_devices()[0]
    if program.memory_limit is not None or device.platform != "cpu" or not of_host:
        of_device = (device.memory_stats() or {}).get("bytes_limit")
        return of_device if program.memory_limit is None else program.memory_limit
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not of this system
        return None


def is_spread(program: Program) -> bool:
    """Whether an array of the arguments is on several devices."""
    shardings = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves((program.args, program.kwargs)))
    return any(len(getattr(it, "device_set", ())) > 1 for it in shardings)
