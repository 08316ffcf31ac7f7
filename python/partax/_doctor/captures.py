"""Reads where the arrays go that a program has captured, and what is computed from them alone."""

import dataclasses
from typing import Any

from jax.extend.core import Literal

from partax._doctor.equations import bytes_of
from partax._doctor.examined import Examined
from partax._doctor.flat_program import LITERAL, FlatProgram, FlatPrograms, Place, flat_programs
from partax._doctor.folding import folding_seconds
from partax._doctor.fusion import ELEMENTWISE, TREATMENT
from partax._doctor.lines import NOWHERE, Line

# What a value is known to be: the index of a captured array, or one of these. All else is not in the table.
_COMPUTED = -1  # from captured arrays alone
_FILLED = -2  # the same number in all places, as of `jnp.ones`


@dataclasses.dataclass
class Captured:
    """A captured array."""

    value: Any
    is_hoisted: bool  # whether each call passes it as a hidden argument, so that it is not compiled into the program
    line: Line = NOWHERE  # of the first equation that uses it

    @property
    def bytes(self) -> int:
        return bytes_of(self.value)


class Captures:
    """The arrays that a program has captured, and the equations that XLA evaluates while it compiles, with seconds."""

    def __init__(self, examined: Examined) -> None:
        self.arrays: list[Captured] = []
        self.folded: list[tuple[Place, float]] = []
        self._numbers: dict[int, int] = {}  # of arrays, by identity
        if _may_have(examined):
            programs = flat_programs(examined)
            self._read(programs, programs.outermost, {})

    def _read(self, programs: FlatPrograms, program: FlatProgram, known: dict[int, int]) -> None:
        """Reads a program, of whose values some are known."""
        known.update((number, self._number(value, False)) for number, value in program.constants.items())
        for i, (eqn, reads) in enumerate(zip(program.eqns, program.reads, strict=True)):
            inside = programs.inside(program, i)
            is_known, holds = True, False
            for var, number in zip(eqn.invars, reads, strict=True):
                what = known.get(number)
                if number == LITERAL and var.aval.shape:
                    self._use(self._number(var.val, True), program, i)
                    is_known = False  # XLA has it as a parameter
                elif number != LITERAL and what is None:
                    is_known = False
                elif what is not None and what != _FILLED:
                    holds = True
                    if what >= 0 and not any(number in body.given for body, _ in inside):
                        self._use(what, program, i)
            for body, inner in inside:
                given = zip(inner.inputs, body.given, strict=True)
                self._read(programs, inner, {number: known[it] for number, it in given if it in known})
            made = self._made(Place(program, i), holds) if is_known and not inside else None
            if made is not None:
                known.update((number, made) for number in program.writes[i])

    def _made(self, place: Place, holds: bool) -> int | None:
        """What an operation on known operands gives."""
        eqn, name = place.eqn, place.eqn.primitive.name
        if not eqn.invars or not eqn.outvars or eqn.effects:
            return None
        if not holds and not name.startswith("reduce_window"):
            return _FILLED if TREATMENT.get(name) in ELEMENTWISE else None
        seconds = folding_seconds(eqn)
        if seconds:
            self.folded.append((place, seconds))
        return None if seconds is None else _COMPUTED

    def _number(self, value: Any, is_hoisted: bool) -> int:
        number = self._numbers.setdefault(id(value), len(self._numbers))
        if number == len(self.arrays):
            self.arrays.append(Captured(value, is_hoisted))
        return number

    def _use(self, number: int, program: FlatProgram, index: int) -> None:
        if self.arrays[number].line is NOWHERE:
            self.arrays[number].line = program.line(index)


def _may_have(examined: Examined) -> bool:
    """Whether a program may have captured anything, or have XLA evaluate something though it has not."""
    equations = examined.equations
    return (
        bool(examined.jaxpr.consts)
        or any(name.startswith("reduce_window") for name in set(equations.names))
        or any(type(var) is Literal and getattr(var.aval, "shape", ()) for eqn in equations.eqns for var in eqn.invars)
        or any(holder.consts for _, holder, _ in equations.held() if hasattr(holder, "consts"))
    )
