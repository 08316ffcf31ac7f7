"""A program with its calls inlined, as XLA sees it: equations in a row, with numbers for what they read and make."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jax.extend.core import Literal

from partax._doctor.equations import bytes_of, held_programs, scan_parts
from partax._doctor.examined import Examined, kept
from partax._doctor.fusion import INLINED, TREATMENT, treatment_of
from partax._doctor.lines import Line, nearest_line

LITERAL = -1
_NO_BODIES = ("pallas_call",)  # its arrays are in the memory of a core


@dataclasses.dataclass(slots=True)
class Call:
    """A call whose program is read where it stands; or a program itself, as the outermost one or that of a loop."""

    eqn: Any  # None of the outermost program
    parent: "Call | None"
    jaxpr: Any
    eqns: Iterator[Any]  # that are still to be read
    numbers: dict[Any, int]  # of its values


class Body(NamedTuple):
    jaxpr: Any
    constants: Sequence[Any]  # what it has captured itself, for its constant variables in order
    given: Sequence[int | None]  # for each input the operand that it is; None for what changes from turn to turn


class FlatProgram:
    """The equations of a jaxpr in a row, none of which is a call; each value has a number, also inside of calls."""

    def __init__(self, inputs: list[int]) -> None:
        self.inputs = inputs  # the numbers of the jaxpr's inputs
        self.results: list[int] = []  # and those of its outputs
        self.values = 0  # how many numbers there are
        self.constants: dict[int, Any] = {}  # what is captured, in calls too, by its number
        self.constant_bytes = 0
        # For each equation, what it reads (`LITERAL` for a literal) and makes, `treatment_of` it, and the call that it
        # is inside of; and by its index the programs inside of it.
        self.eqns: list[Any] = []
        self.reads: list[tuple[int, ...]] = []
        self.writes: list[tuple[int, ...]] = []
        self.treatments: list[int | None] = []
        self.calls: list[Call] = []
        self.bodies: dict[int, list[Body]] = {}

    @functools.cached_property
    def makers(self) -> dict[int, int]:
        """The index of the equation that makes each value, but for inputs and constants."""
        return {number: i for i, made in enumerate(self.writes) for number in made}

    @functools.cached_property
    def readers(self) -> dict[int, list[int]]:
        readers: dict[int, list[int]] = {}
        for i, reads in enumerate(self.reads):
            for number in reads:
                readers.setdefault(number, []).append(i)
        return readers

    def line(self, index: int) -> Line:
        """The user's line of an equation; of what it is inside of where it has none, as in jax's own functions."""
        around = [self.eqns[index]]
        call = self.calls[index]
        while call.parent is not None:
            around.append(call.eqn)
            call = call.parent
        return nearest_line(around)


class Place(NamedTuple):
    program: FlatProgram
    at: int

    @property
    def eqn(self) -> Any:
        return self.program.eqns[self.at]

    @property
    def line(self) -> Line:
        return self.program.line(self.at)


class FlatPrograms(NamedTuple):
    """A program, and those inside of its equations, each once, by the id of its jaxpr."""

    outermost: FlatProgram
    inner: dict[int, FlatProgram]

    @property
    def all(self) -> list[FlatProgram]:
        return [self.outermost, *self.inner.values()]

    def inside(self, program: FlatProgram, index: int) -> list[tuple[Body, FlatProgram]]:
        return [(body, self.inner[id(body.jaxpr)]) for body in program.bodies.get(index, ())]


@kept
def flat_programs(examined: Examined) -> FlatPrograms:
    """The program and those inside of it, flat. Time and memory grow linearly with the equations."""
    outermost = _flat_program(examined.jaxpr.jaxpr, examined.jaxpr.consts)
    inner: dict[int, FlatProgram] = {}
    left = [outermost]
    while left:
        program = left.pop()
        for i, bodies in program.bodies.items():
            for body in bodies:
                if id(body.jaxpr) not in inner:
                    found = _flat_program(body.jaxpr, body.constants, program.eqns[i], program.calls[i])
                    inner[id(body.jaxpr)] = found
                    left.append(found)
    return FlatPrograms(outermost, inner)


def _called(eqn: Any) -> tuple[Any, Sequence[Any]]:
    """The program that a call runs, and what that has captured; None where its inputs are not those of the call."""
    _, holder, inner = next(held_programs(eqn), ("", None, None))
    is_plain = inner is not None and len(inner.invars) == len(eqn.invars)
    return (inner, getattr(holder, "consts", ())) if is_plain else (None, ())


def _bodies(eqn: Any, reads: Sequence[int]) -> Iterator[Body]:
    for name, holder, jaxpr in held_programs(eqn):
        kind, given, count = eqn.primitive.name, list[int | None](reads), len(jaxpr.invars)
        if kind == "scan":
            kept = scan_parts(eqn).consts
            given[kept:] = [None] * (len(given) - kept)
        elif kind == "while":
            first, second = int(eqn.params["cond_nconsts"]), int(eqn.params["body_nconsts"])
            given = given[:first] if name == "cond_jaxpr" else given[first : first + second]
            given += [None] * (count - len(given))
        elif kind == "cond":
            given = given[1:]
        yield Body(jaxpr, getattr(holder, "consts", ()), given if len(given) == count else [None] * count)


def _flat_program(jaxpr: Any, constants: Sequence[Any], around: Any = None, parent: Call | None = None) -> FlatProgram:
    """The equations of a jaxpr in a row, without those inside of loops and branches; it may be inside of one itself."""
    numbers: dict[Any, int] = {var: i for i, var in enumerate((*jaxpr.constvars, *jaxpr.invars))}
    count = len(numbers)
    flat = FlatProgram(list(range(len(jaxpr.constvars), count)))
    flat.constants.update(enumerate(constants))
    flat.constant_bytes = sum(bytes_of(var.aval) for var in jaxpr.constvars)
    eqns, reads, writes, treatments = flat.eqns, flat.reads, flat.writes, flat.treatments
    calls = flat.calls
    stack = [Call(around, parent, jaxpr, iter(jaxpr.eqns), numbers)]
    while True:
        call = stack[-1]
        known = call.numbers
        for eqn in call.eqns:
            treatment = TREATMENT.get(eqn.primitive.name)
            inner, captured = None, ()
            if treatment is None:
                treatment = treatment_of(eqn)
                inner, captured = _called(eqn) if eqn.primitive.name in INLINED else (None, ())
            given = tuple([LITERAL if type(var) is Literal else known[var] for var in eqn.invars])
            if inner is None:
                if treatment is None and eqn.primitive.name not in _NO_BODIES:
                    bodies = list(_bodies(eqn, given))
                    if bodies:
                        flat.bodies[len(eqns)] = bodies
                first = count
                for var in eqn.outvars:
                    known[var] = count
                    count += 1
                eqns.append(eqn)
                reads.append(given)
                writes.append((first,) if count == first + 1 else tuple(range(first, count)))
                treatments.append(treatment)
                calls.append(call)
                continue
            own = range(count, count + len(inner.constvars))
            count += len(own)
            flat.constants.update(zip(own, captured, strict=False))
            flat.constant_bytes += sum(bytes_of(var.aval) for var in inner.constvars)
            numbers = dict(zip((*inner.constvars, *inner.invars), (*own, *given), strict=True))
            stack.append(Call(eqn, call, inner, iter(inner.eqns), numbers))
            break
        else:
            results = [LITERAL if type(var) is Literal else known[var] for var in call.jaxpr.outvars]
            stack.pop()
            if not stack:
                break
            stack[-1].numbers.update(zip(call.eqn.outvars, results, strict=True))
    flat.results, flat.values = results, count
    return flat
