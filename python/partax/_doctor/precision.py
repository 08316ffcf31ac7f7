"""Finds where a program begins to compute in a wider type than that of its arguments, by line.

That is where an array of the arguments' type is combined with something wider that does not come from them: a NumPy
array, a strongly typed scalar, numbers that jax made in its default type. In half precision it is told only where such
a value is multiplied as a matrix or given back: a rotation or a norm that is cast back is meant so.
"""

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from partax._doctor.examined import Examined
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.flat_program import LITERAL, FlatProgram, Place, flat_program
from partax._doctor.lines import Line, grouped
from partax._jax.programs import frames_of
from partax._pytree.short_text import array_text

# Of the operations that give arrays of floats, how many give wider ones. A sum or a loss that is meant to be in
# float64 is one or two of the dozens of a training step.
_SMALLEST_SHARE = 0.1
# In half precision losses, norms and attention are often meant to be in float32: a third of a transformer's operations.
_SMALLEST_SHARE_OF_HALF = 0.5
_HIGH_SHARE = 0.5  # from which a type that the user has named is told too, as `astype(float)` is float64 with x64

_WIDTHS = {"bfloat16": 2, "float16": 2, "float32": 4, "complex64": 4, "float64": 8, "complex128": 8}
_HALF, _DOUBLE = 2, 8
_PRODUCTS = {"dot_general", "ragged_dot", "ragged_dot_general", "conv_general_dilated"}
_NAMES_A_TYPE = {"astype", "convert_element_type", "asarray", "array"}  # functions of `jax.numpy` and `jax.lax`


class _Widened(NamedTuple):  # where an array of the arguments' type becomes wider
    place: Place
    narrow: str  # the type that came in
    wide: str  # and the one that came out
    because: str  # what it is combined with; empty where the user has named the type
    is_used: bool  # whether a product of matrices, or the result, has come of it before it was cast back


# The wide values that come from arrays of the arguments' type; those just converted with the equation that did it.
_Derived = dict[int, Place | None]


def find(examined: Examined) -> Iterator[Finding]:
    widths = {width for leaf in examined.arguments if _is_array(leaf.aval) and (width := _width(leaf.aval))}
    if len(widths) != 1 or _DOUBLE in widths:
        return
    own = widths.pop()
    eqns = examined.equations.eqns
    if all(_width(var.aval) <= own for i in examined.equations.first_of_tokens for var in eqns[i].outvars):
        return
    reader = _Reader(own)
    reader.read(flat_program(examined), {})
    share = reader.wide / max(reader.arrays, 1)
    if share < (_SMALLEST_SHARE_OF_HALF if own == _HALF else _SMALLEST_SHARE):
        return

    def is_told(it: _Widened) -> bool:
        return bool(it.because) and it.is_used if own == _HALF else bool(it.because) or share >= _HIGH_SHARE

    for line, found in grouped(filter(is_told, reader.found), lambda it: it.place.line).items():
        yield _finding(line, found, reader.wide, reader.arrays)


def _width(aval: Any) -> int:
    """The bytes of a float, or of a part of a complex number; 0 of other types."""
    return _width_of(getattr(aval, "dtype", None))


@functools.cache  # to ask a dtype for its name takes long
def _width_of(dtype: Any) -> int:
    return _WIDTHS.get(getattr(dtype, "name", ""), 0)


def _is_array(aval: Any) -> bool:
    return math.prod(getattr(aval, "shape", ())) > 1


class _Reader:
    def __init__(self, own: int) -> None:
        self.found: list[_Widened] = []
        self.wide = self.arrays = 0  # how many operations give arrays of wider floats, and of any
        self._own = own

    def read(self, program: FlatProgram, derived: _Derived) -> None:
        """Reads a program, of whose values some are known; what comes out of a loop is its body's result."""
        used = self._used(program) if self._own == _HALF else set[int]()
        for i, eqn in enumerate(program.eqns):
            bodies = program.bodies.get(i, ())
            for inner, givens in bodies:
                inputs = zip(inner.inputs, givens, inner.jaxpr.invars, strict=True)
                wide = [(number, given) for number, given, var in inputs if self._is_wide(var)]
                # Of what changes from turn to turn nothing is known: it is taken to be derived.
                known = [it for it in wide if it[1] is None or it[1] in derived]
                self.read(inner, {number: None if given is None else derived[given] for number, given in known})
            if bodies:
                made = zip(program.writes[i], eqn.outvars, strict=True)
                derived.update((number, None) for number, var in made if self._is_wide(var))
            elif eqn.outvars:
                result = eqn.outvars[0]
                if _width(result.aval) and _is_array(result.aval):
                    self.arrays += 1
                    self.wide += self._is_wide(result)
                if self._is_wide(result):
                    self._read(Place(program, i), derived, used)

    def _is_wide(self, var: Any) -> bool:
        return _width(var.aval) > self._own

    def _read(self, place: Place, derived: _Derived, used: set[int]) -> None:
        eqn, reads, [result, *_] = place.eqn, place.program.reads[place.at], place.program.writes[place.at]
        operands = list(zip(reads, eqn.invars, strict=True))
        arrays = [(number, var) for number, var in operands if number != LITERAL and _is_array(var.aval)]
        narrow = {number for number, var in arrays if _width(var.aval) == self._own}
        if not narrow and derived.keys().isdisjoint(reads):
            return
        derived[result] = None
        if eqn.primitive.name == "convert_element_type":
            # One that the user wrote is not one of two operands to their common type.
            if narrow and any(code.co_name in _NAMES_A_TYPE for code in frames_of(eqn)[0]):
                before, after = array_text(eqn.invars[0].aval), array_text(eqn.outvars[0].aval)
                self.found.append(_Widened(place, before, after, "", False))
            elif narrow:
                derived[result] = place
            return
        others = [var.aval for number, var in operands if self._is_wide(var) and number not in derived]
        for number, var in operands if others else ():
            at = place if number in narrow else derived.get(number)
            if at is not None:
                text = array_text(var.aval if at is place else at.eqn.invars[0].aval)
                because = f"{'an array' if _is_array(others[0]) else 'a scalar'} of type {others[0].dtype.name}"
                self.found.append(_Widened(at, text, array_text(eqn.outvars[0].aval), because, result in used))
            if number in derived:
                derived[number] = None  # which is told once

    def _used(self, program: FlatProgram) -> set[int]:
        """The values that products of matrices, programs inside and results come of while they are wide."""
        used = set(program.results)
        for i in range(len(program.eqns) - 1, -1, -1):
            eqn, made = program.eqns[i], program.writes[i]
            is_wide = bool(made) and made[0] in used and self._is_wide(eqn.outvars[0])
            if is_wide or i in program.bodies or eqn.primitive.name in _PRODUCTS:
                used.update(program.reads[i])
        return used


def _finding(line: Line, found: list[_Widened], wide: int, arrays: int) -> Finding:
    share, first = wide / arrays, found[0]
    severity: Severity = "high" if share >= _HIGH_SHARE else "medium"
    why = f"as it is combined with {first.because}" if first.because else "as the type is named here"
    of = f"{wide} of {arrays} operations on arrays of floats are in the wider type ({share:.0%})"
    message = f"{first.narrow} becomes {first.wide} {why}: {of}"
    advice = f"name `jnp.{first.narrow.partition('[')[0]}` or `x.dtype` if that is enough; `float` is float64 where 64 "
    advice += "bits are enabled"
    if first.because:
        advice = "give what it is combined with the type of the argument (`.astype(x.dtype)`, `dtype=x.dtype`), or use "
        advice += "a Python number, which takes the type of the array"
    figures = {"operations": wide, "all_operations": arrays, "share": round(share, 3), "places": len(found)}
    return finding_at(line, "precision", severity, message, advice, **figures)
