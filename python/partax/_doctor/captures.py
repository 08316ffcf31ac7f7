"""Reads where the arrays go that a program has captured, and what is computed from them alone."""

import dataclasses
from typing import Any

from jax.extend.core import Literal

from partax._doctor.equations import bytes_of
from partax._doctor.examined import Examined
from partax._doctor.flat_program import LITERAL, FlatProgram, Place, flat_programs
from partax._doctor.folding import folding_seconds
from partax._doctor.fusion import ELEMENTWISE, TREATMENT

# What a value is known to be: the index of a captured array, or one of these. All else is not in the table.
_COMPUTED = -1  # from captured arrays alone
_FILLED = -2  # the same number in all places, as of `jnp.ones`


@dataclasses.dataclass
class Captured:
    """A captured array.

    Attributes:
      value: the array.
      hoisted: whether each call passes it as a hidden argument, so that it is not compiled into the program.
      used: the first equation that uses it; None where none does.
    """

    value: Any
    hoisted: bool
    used: Place | None = None

    @property
    def bytes(self) -> int:
        return bytes_of(self.value)


@dataclasses.dataclass
class Captures:
    """What a program has captured.

    Attributes:
      arrays: those that it has captured.
      folded: the equations that XLA evaluates while it compiles, each with its seconds.
    """

    arrays: list[Captured] = dataclasses.field(default_factory=list[Captured])
    folded: list[tuple[Place, float]] = dataclasses.field(default_factory=list[tuple[Place, float]])


def captures_of(examined: Examined) -> Captures:
    """Reads a program once, if it may have captured anything, or have XLA evaluate something though it has not."""
    if not _may_have(examined):
        return Captures()
    reader = _Reader(examined)
    reader.read(reader.programs.outermost, {})
    return reader.found


def _may_have(examined: Examined) -> bool:
    equations = examined.equations
    return (
        bool(examined.jaxpr.consts)
        or any(name.startswith("reduce_window") for name in set(equations.names))
        or any(type(var) is Literal and getattr(var.aval, "shape", ()) for eqn in equations.eqns for var in eqn.invars)
        or any(holder.consts for _, holder, _ in equations.held() if hasattr(holder, "consts"))
    )


class _Reader:
    def __init__(self, examined: Examined) -> None:
        self.found = Captures()
        self.programs = flat_programs(examined)
        self._numbers: dict[int, int] = {}  # of arrays, by identity

    def read(self, program: FlatProgram, known: dict[int, int]) -> None:
        """Reads a program, of whose values some are known."""
        known.update((number, self._number(value, False)) for number, value in program.constants.items())
        for i, (eqn, reads) in enumerate(zip(program.eqns, program.reads, strict=True)):
            inside = self.programs.inside(program, i)
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
                self.read(inner, {number: known[it] for number, it in given if it is not None and it in known})
            made = self._made(Place(program, i), holds) if is_known and not inside else None
            if made is not None:
                known.update((number, made) for number in program.writes[i])

    def _made(self, place: Place, holds: bool) -> int | None:
        """What an operation on known operands gives."""
        eqn = place.eqn
        name = eqn.primitive.name
        if not eqn.invars or not eqn.outvars or eqn.effects:
            return None
        if not holds and not name.startswith("reduce_window"):
            return _FILLED if TREATMENT.get(name) in ELEMENTWISE else None
        seconds = folding_seconds(eqn)
        if seconds is None:
            return None
        if seconds:
            self.found.folded.append((place, seconds))
        return _COMPUTED

    def _number(self, value: Any, hoisted: bool) -> int:
        number = self._numbers.setdefault(id(value), len(self._numbers))
        if number == len(self.found.arrays):
            self.found.arrays.append(Captured(value, hoisted))
        return number

    def _use(self, number: int, program: FlatProgram, index: int) -> None:
        captured = self.found.arrays[number]
        if captured.used is None:
            captured.used = Place(program, index)
