"""Reads where the arrays go that a program has captured, and what is computed from them alone."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from jax.extend.core import Literal

from partax._doctor.equations import Equations, bytes_of
from partax._doctor.examined import Examined
from partax._doctor.folding import folding_seconds
from partax._doctor.fusion import ELEMENTWISE, TREATMENT
from partax._doctor.inner_programs import InnerProgram, bind_known, calls_of, inner_programs, through_calls

# What a value is known to be: the index of a captured array, or one of these. All else is not in the table.
_COMPUTED = -1  # from captured arrays alone
_FILLED = -2  # the same number in all places, as of `jnp.ones`


@dataclasses.dataclass
class Captured:
    """A captured array.

    Attributes:
      value: the array.
      hoisted: whether each call passes it as a hidden argument, so that it is not compiled into the program.
      used: the index of the first equation that uses it; None where none does.
    """

    value: Any
    hoisted: bool
    used: int | None = None

    @property
    def bytes(self) -> int:
        return bytes_of(self.value)


@dataclasses.dataclass
class Captures:
    """What a program has captured.

    Attributes:
      arrays: those that it has captured.
      folded: the indices of the equations that XLA evaluates while it compiles, each with its seconds.
    """

    arrays: list[Captured] = dataclasses.field(default_factory=list[Captured])
    folded: list[tuple[int, float]] = dataclasses.field(default_factory=list[tuple[int, float]])


def captures_of(examined: Examined) -> Captures:
    """Reads a program once."""
    reader = _Reader(examined.equations)
    reader.captured_by(examined.jaxpr.jaxpr, examined.jaxpr.consts)
    if reader.has_work():
        reader.read()
    return reader.found


def _is_array(literal: Any) -> bool:
    return bool(getattr(literal.aval, "shape", ()))


class _Reader:
    def __init__(self, equations: Equations) -> None:
        self.found = Captures()
        self._equations = equations
        self._numbers: dict[int, int] = {}  # of arrays, by identity
        # Of all programs: a program that is called again has the same variables, and each is set anew.
        self._known: dict[Any, int] = {}

    def captured_by(self, jaxpr: Any, constants: Any) -> None:
        for var, value in zip(jaxpr.constvars, constants, strict=False):
            self._known[var] = self._number(value, False)

    def has_work(self) -> bool:
        """Whether anything is captured, or may be evaluated though nothing is."""
        equations = self._equations
        return (
            bool(self._known)
            or any(name.startswith("reduce_window") for name in set(equations.names))
            or any(type(var) is Literal and _is_array(var) for eqn in equations.eqns for var in eqn.invars)
            or any(inner.constants for i in calls_of(equations) for inner in inner_programs(equations.eqns[i]))
        )

    def read(self) -> None:
        known, equations = self._known, self._equations
        bind = functools.partial(bind_known, known)
        for i, eqn, programs in through_calls(equations, range(len(equations)), bind):
            is_known, holds = self._operands(eqn, i, bool(programs))
            if programs:
                self._enter(eqn, i, programs)
                continue
            made = self._made(eqn, holds, i) if is_known else None
            if made is not None:
                known.update((var, made) for var in eqn.outvars)
            elif known and equations.depths[i]:
                for var in eqn.outvars:
                    known.pop(var, None)

    def _operands(self, eqn: Any, index: int, has_inner: bool) -> tuple[bool, bool]:
        """Whether all operands are known, and whether one of them is an array that the program holds."""
        is_known, holds = True, False
        for var in eqn.invars:
            if type(var) is Literal:
                if _is_array(var):
                    self._use(self._number(var.val, True), index)
                    is_known = False  # XLA has it as a parameter
                continue
            what = self._known.get(var)
            if what is None:
                is_known = False
            elif what != _FILLED:
                holds = True
        if holds and not has_inner:
            for var in eqn.invars:
                if type(var) is not Literal and self._known.get(var, _COMPUTED) >= 0:
                    self._use(self._known[var], index)
        return is_known, holds

    def _made(self, eqn: Any, holds: bool, index: int) -> int | None:
        """What an operation on known operands gives."""
        name = eqn.primitive.name
        if not eqn.invars or not eqn.outvars or eqn.effects:
            return None
        if not holds and not name.startswith("reduce_window"):
            return _FILLED if TREATMENT.get(name) in ELEMENTWISE else None
        seconds = folding_seconds(eqn)
        if seconds is None:
            return None
        if seconds:
            self.found.folded.append((index, seconds))
        return _COMPUTED

    def _enter(self, eqn: Any, index: int, programs: Sequence[InnerProgram]) -> None:
        """What inner programs have captured, and what the equation uses itself and gives to none of them."""
        given_on = {id(given) for program in programs for given in program.given}
        for var in eqn.invars:
            if type(var) is not Literal and id(var) not in given_on and self._known.get(var, _COMPUTED) >= 0:
                self._use(self._known[var], index)
        for program in programs:
            self.captured_by(program.jaxpr, program.constants)

    def _number(self, value: Any, hoisted: bool) -> int:
        number = self._numbers.setdefault(id(value), len(self._numbers))
        if number == len(self.found.arrays):
            self.found.arrays.append(Captured(value, hoisted))
        return number

    def _use(self, number: int, index: int) -> None:
        captured = self.found.arrays[number]
        if captured.used is None:
            captured.used = index
