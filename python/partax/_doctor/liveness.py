"""How much memory a program takes: estimated by a walk over its equations, or as XLA has it; and how much there is."""

import heapq
import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from partax._doctor.equations import LOOPS, bytes_of
from partax._doctor.examined import Examined, kept
from partax._doctor.flat_program import COSTLY, ELEMENTWISE, IN_PLACE, LITERAL, REDUCE, VIEW, FlatProgram, flat_program
from partax._doctor.lines import NOWHERE, Line
from partax._pytree.short_text import array_text

_LARGEST = 16  # buffers that are named of those at the peak
_READS_AS_MADE = (*ELEMENTWISE, REDUCE)
_WRITES_OVER = (*ELEMENTWISE, IN_PLACE)


class Buffer(NamedTuple):
    type: str  # dtype and shape, such as `float32[1000,10]`
    bytes: int
    name: str  # the path of an argument, or the primitive that made it
    line: Line  # of the user's that made it; `NOWHERE` of arguments
    begin: int  # the first equation in which it lives
    end: int  # and the last one


class Liveness(NamedTuple):
    bytes: tuple[int, ...]  # for each equation of the flat program, with the most that programs inside of it need
    peak: int  # the most of these
    peak_step: int  # the equation in which that is
    largest: tuple[Buffer, ...]  # that live at the peak, the largest first


class _Made(NamedTuple):
    bytes: int
    aval: Any
    at: int
    last: int  # the equation that reads it last


class _Walk(NamedTuple):
    """What lives along a program."""

    program: FlatProgram
    bytes: list[int]  # by equation
    peak: int
    at: int  # the equation where that is
    made: list[_Made]
    last: list[int]  # the equation that reads each value last

    def buffers(self, span: tuple[int, int] | None = None) -> Iterator[Buffer]:
        """The largest that live where the most do; those of inner programs live for the equation around these."""
        at_peak = (it for it in self.made if it.at <= self.at <= it.last)
        for it in heapq.nlargest(_LARGEST, at_peak, key=lambda it: it.bytes):
            name, line = self.program.eqns[it.at].primitive.name, self.program.line(it.at)
            begin, end = span or (it.at, min(it.last, len(self.bytes) - 1))
            yield Buffer(array_text(it.aval), it.bytes, name, line, begin, end)


@kept
def live_bytes(examined: Examined) -> Liveness:
    """The live bytes along a program. Time and memory grow linearly with the equations.

    An argument lives to the end, or to its last use if it is donated; a result to the end; all else to its last use.
    What XLA fuses takes nothing: an elementwise result that only elementwise operations and reductions read.
    """
    program = flat_program(examined)
    inner: dict[int, _Walk] = {}
    _walk_inner(program, inner)
    leaves = dict(zip(program.inputs, examined.arguments, strict=True))
    donated = {number: leaf.bytes for number, leaf in leaves.items() if leaf.donated}
    always = sum(leaf.bytes for leaf in leaves.values() if not leaf.donated) + program.constant_bytes
    outer = walk = _walk(program, inner, always, donated)
    at, end = walk.at, max(len(program.eqns) - 1, 0)
    ends = {number: min(max(walk.last[number], 0), end) if leaf.donated else end for number, leaf in leaves.items()}
    alive = ((leaf, ends[number]) for number, leaf in leaves.items() if ends[number] >= at)
    buffers = [Buffer(array_text(leaf.aval), leaf.bytes, leaf.path, NOWHERE, 0, last) for leaf, last in alive]
    buffers += walk.buffers()
    while inside := [inner[id(it.program)] for it in walk.program.bodies.get(walk.at, ())]:
        walk = max(inside, key=lambda it: it.peak)
        buffers += walk.buffers((at, at))
    largest = heapq.nlargest(_LARGEST, buffers, key=lambda it: it.bytes)
    return Liveness(tuple(outer.bytes), outer.peak, at, tuple(largest))


def _walk_inner(program: FlatProgram, done: dict[int, _Walk]) -> None:
    """Walks the programs inside of a program's equations, by their ids; the innermost first."""
    for inner in (body.program for bodies in program.bodies.values() for body in bodies):
        if id(inner) not in done:
            _walk_inner(inner, done)
            done[id(inner)] = _walk(inner, done)


def _last_uses(program: FlatProgram) -> tuple[list[int], bytearray]:
    """What reads each value last (-1: nothing, the number of equations: a result), and what is fused or unused."""
    count = len(program.eqns)
    last = [-1] * program.values
    is_buffer = bytearray(program.values)  # what must be there as a whole
    is_result = bytearray(program.values)
    is_read_twice = bytearray(program.values)
    is_fused = bytearray(count)
    for number in program.results:
        if number != LITERAL:
            last[number] = count
            is_buffer[number] = is_result[number] = 1
    reads, writes, treatments = program.reads, program.writes, program.treatments
    for i in range(count - 1, -1, -1):
        made, treatment = writes[i], treatments[i]
        number = made[0] if made else LITERAL
        end = last[number] if len(made) == 1 else max([last[number] for number in made], default=-1)
        if end < 0 and not program.eqns[i].effects:
            is_fused[i] = 1  # nothing needs it
            continue
        reads_buffers = treatment not in _READS_AS_MADE
        if treatment == VIEW and not is_result[number]:
            is_fused[i], reads_buffers = 1, is_buffer[number]
        elif treatment in ELEMENTWISE and not (is_buffer[number] or (treatment == COSTLY and is_read_twice[number])):
            is_fused[i] = len(made) == 1 or not any(is_buffer[number] for number in made)
            end = end if is_fused[i] else i
        else:
            end = i
        for number in reads[i]:
            if number < 0:  # a literal
                continue
            is_read_twice[number] = last[number] >= 0
            last[number] = max(last[number], end)
            if reads_buffers:
                is_buffer[number] = 1
    return last, is_fused


def _walk(
    program: FlatProgram, inner: dict[int, _Walk], always: int = 0, inputs: Mapping[int, int] = MappingProxyType({})
) -> _Walk:
    """Adds up what lives: what does so `always`, and inputs until their last use, their bytes by number."""
    has_results = program.around is None or program.around.primitive.name in LOOPS  # those of a branch are its caller's
    last, is_fused = _last_uses(program)
    count = len(program.eqns)
    freed = [0] * (count + 1)
    for number, size in inputs.items():
        freed[max(last[number], 0)] += size
    live = always + sum(inputs.values())
    bytes_at: list[int] = []
    made: list[_Made] = []
    for i, eqn in enumerate(program.eqns):
        if is_fused[i]:
            bytes_at.append(live)
            live -= freed[i]
            continue
        new = 0
        for number, var in zip(program.writes[i], eqn.outvars, strict=True):
            end = last[number]
            if end >= 0 and (end < count or has_results):
                size = bytes_of(var.aval)
                new += size
                freed[end] += size
                made.append(_Made(size, var.aval, i, end))
        treatment = program.treatments[i]
        inside = max((inner[id(body.program)].peak for body in program.bodies.get(i, ())), default=0)
        live += new
        # What is read for the last time may be written over.
        over = min(new, freed[i]) if treatment in _WRITES_OVER or eqn.primitive.name in LOOPS else 0
        bytes_at.append(live - over + inside)
        live -= freed[i]
    peak = max(bytes_at, default=live)
    return _Walk(program, bytes_at, peak, bytes_at.index(peak) if bytes_at else 0, made, last)


_SOON_COMPILED = 200  # equations
_SOON_COMPILED_BYTES = 16 << 20  # of captured arrays
# Of the platforms on which a small program is compiled to see what it takes; a GPU's runs what it chooses between.
_COMPILER_OPTIONS: dict[str, dict[str, Any]] = {"cpu": {}, "gpu": {"xla_gpu_autotune_level": 0}}


def peak_bytes(examined: Examined) -> int:
    """The most bytes that live at once: XLA's figure where the program is compiled, else an estimate."""
    peak = _peak_of(examined.compiled)
    return live_bytes(examined).peak if peak is None else peak


def _peak_of(compiled: Any) -> int | None:
    """XLA's figure; None where it has none, or nothing is compiled."""
    found = compiled and compiled.memory_analysis()
    if not found or (jax.default_backend() == "cpu" and _hides_buffers(compiled.as_text())):
        return None
    taken = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return taken - found.alias_size_in_bytes


def _hides_buffers(hlo: str) -> bool:
    """Whether a library of the CPU (YNNPACK) has buffers that XLA does not count, as of a whole attention."""
    inner = "\n".join(part for part in hlo.split("\n\n") if not part.startswith("ENTRY"))
    return "kind=kCustom" in hlo and any(" dot(" in line and "ROOT" not in line for line in inner.splitlines())


def peak_of_xla(examined: Examined) -> int | None:
    """XLA's figure, if the program is compiled or can be in little time; None otherwise."""
    if examined.compiled is not None or examined.traced is None:
        return _peak_of(examined.compiled)
    captured = sum(map(bytes_of, examined.jaxpr.consts))
    is_small = len(examined.equations) <= _SOON_COMPILED and captured <= _SOON_COMPILED_BYTES
    options = _COMPILER_OPTIONS.get(jax.default_backend())
    if not is_small or options is None:
        return None
    try:
        return _peak_of(examined.traced.lower().compile(compiler_options=options))
    except Exception:  # what needs its own devices or handlers
        return None


def memory_limit(examined: Examined) -> int | None:
    """The bytes that a program may take: as the user says, or those of the device; None where nobody knows."""
    told = told_limit(examined)
    if told is not None or jax.local_devices()[0].platform != "cpu":
        return told
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not of this system
        return None


def told_limit(examined: Examined) -> int | None:
    """The same, but for the memory of the machine."""
    if examined.memory_limit is not None:
        return examined.memory_limit
    return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")


def is_spread(examined: Examined) -> bool:
    """Whether an array of the arguments is on several devices."""
    shardings = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves((examined.args, examined.kwargs)))
    return any(len(getattr(it, "device_set", ())) > 1 for it in shardings)
