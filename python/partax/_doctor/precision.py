"""Finds where a program begins to compute in a wider type than that of its arguments, by line.

That is where an array of the arguments' type is combined with something wider that does not come from them: a NumPy
array, a strongly typed scalar, numbers that jax made in its default type. In half precision it is told only where such
a value is multiplied as a matrix or given back: a rotation or a norm that is cast back is meant so.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from partax._doctor.examined import Examined
from partax._doctor.finding import Figures, Finding, Severity, finding_at
from partax._doctor.flat_program import LITERAL, Body, FlatProgram, FlatPrograms, Place, flat_programs
from partax._doctor.lines import Line
from partax._jax.programs import frames_of
from partax._pytree.array_text import array_text

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


@dataclasses.dataclass
class _Widened:
    """Where arrays of the arguments' type become wider.

    Attributes:
      place: the equation.
      narrow: the text of the type that came in.
      wide: that of the type that came out.
      because: what it is combined with; empty where the user has named the type.
      is_used: whether a product of matrices, or the result, has come of it before it was cast back.
    """

    place: Place
    narrow: str
    wide: str
    because: str
    is_used: bool


def find(examined: Examined) -> Iterator[Finding]:
    """Findings of the kind `precision`."""
    widths = {width for leaf in examined.arguments if _is_array(leaf.aval) and (width := _width(leaf.aval))}
    if len(widths) != 1 or _DOUBLE in widths:
        return
    own = widths.pop()
    eqns = examined.equations.eqns
    dtypes = {getattr(var.aval, "dtype", None) for i in examined.equations.first_of_tokens for var in eqns[i].outvars}
    if all(_WIDTHS.get(getattr(dtype, "name", ""), 0) <= own for dtype in dtypes):
        return
    programs = flat_programs(examined)
    reader = _Reader(programs, own)
    reader.read(programs.outermost, _Values())
    share = reader.wide / max(reader.arrays, 1)
    if share < (_SMALLEST_SHARE_OF_HALF if own == _HALF else _SMALLEST_SHARE):
        return
    lines: dict[Line, list[_Widened]] = {}
    for it in reader.found:
        if (it.because and it.is_used) if own == _HALF else (it.because or share >= _HIGH_SHARE):
            lines.setdefault(it.place.line, []).append(it)
    for line, found in lines.items():
        yield _finding(line, found, reader.wide, reader.arrays)


def _width(aval: Any) -> int:
    """The bytes of a float, or of a part of a complex number; 0 of other types."""
    return _WIDTHS.get(getattr(getattr(aval, "dtype", None), "name", ""), 0)


def _is_array(aval: Any) -> bool:
    return math.prod(getattr(aval, "shape", ())) > 1


@dataclasses.dataclass
class _Values:
    """What is known of the wide values of a program, by their numbers.

    Attributes:
      derived: which come from arrays of the arguments' type.
      converted: those of them that were just converted, by the equation that did it.
    """

    derived: set[int] = dataclasses.field(default_factory=set[int])
    converted: dict[int, Place] = dataclasses.field(default_factory=dict[int, Place])


class _Reader:
    """Reads a program once.

    Attributes:
      found: where arrays become wider.
      wide: how many operations give arrays of wider floats.
      arrays: how many give arrays of floats.
    """

    def __init__(self, programs: FlatPrograms, own: int) -> None:
        self.found: list[_Widened] = []
        self.wide = self.arrays = 0
        self._programs = programs
        self._own = own
        self._widths: dict[Any, int] = {}
        self._used_of: dict[int, set[int]] = {}

    def read(self, program: FlatProgram, values: _Values) -> None:
        """Reads a program, of whose values some are known; what comes out of a loop is its body's result."""
        for i, eqn in enumerate(program.eqns):
            inside = self._programs.inside(program, i)
            for body, inner in inside:
                self.read(inner, self._given(body, inner, values))
            if inside:
                made = zip(program.writes[i], eqn.outvars, strict=True)
                values.derived.update(number for number, var in made if self._width_of(var.aval) > self._own)
            elif eqn.outvars:
                width = self._width_of(eqn.outvars[0].aval)
                if width and _is_array(eqn.outvars[0].aval):
                    self.arrays += 1
                    self.wide += width > self._own
                if width > self._own:
                    self._read(Place(program, i), values)

    def _given(self, body: Body, inner: FlatProgram, outer: _Values) -> _Values:
        """What is known of a body's inputs. Of what is not known nothing is said: it is taken to be derived."""
        values = _Values()
        for number, given, var in zip(inner.inputs, body.given, body.jaxpr.invars, strict=True):
            if self._width_of(var.aval) <= self._own:
                continue
            if given is None or given in outer.derived:
                values.derived.add(number)
            if given is not None and given in outer.converted:
                values.converted[number] = outer.converted[given]
        return values

    def _width_of(self, aval: Any) -> int:
        """The same as `_width`: the name of a dtype takes long to ask for."""
        dtype = getattr(aval, "dtype", None)
        width = self._widths.get(dtype)
        if width is None:
            width = self._widths[dtype] = _width(aval)
        return width

    def _read(self, place: Place, values: _Values) -> None:
        """An equation with a wide result."""
        reads = place.program.reads[place.at]
        operands = [it for it in zip(reads, place.eqn.invars, strict=True) if it[0] != LITERAL]
        narrow = {number for number, var in operands if self._width_of(var.aval) == self._own and _is_array(var.aval)}
        result = place.program.writes[place.at][0]
        if narrow or not values.derived.isdisjoint(reads):
            values.derived.add(result)
            self._note(place, operands, narrow, values)

    def _note(self, place: Place, operands: list[tuple[int, Any]], narrow: set[int], values: _Values) -> None:
        """What becomes wider by an equation."""
        eqn, wide = place.eqn, array_text(place.eqn.outvars[0].aval)
        result = place.program.writes[place.at][0]
        if eqn.primitive.name == "convert_element_type":
            if narrow and _names_a_type(eqn):
                self.found.append(_Widened(place, array_text(eqn.invars[0].aval), wide, "", False))
            elif narrow:
                values.converted[result] = place
            return
        others = [
            var
            for number, var in zip(place.program.reads[place.at], eqn.invars, strict=True)
            if self._width_of(var.aval) > self._own and number not in values.derived
        ]
        for number, var in operands if others else ():
            at = values.converted.pop(number, place if number in narrow else None)
            if at is not None:
                text = array_text(var.aval if at is place else at.eqn.invars[0].aval)
                is_used = result in self._used(place.program)
                self.found.append(_Widened(at, text, wide, _text(others[0].aval), is_used))

    def _used(self, program: FlatProgram) -> set[int]:
        """The values that products of matrices, programs inside and results come of while they are wide."""
        used = self._used_of.get(id(program))
        if used is None:
            used = self._used_of[id(program)] = set(program.results)
            for i in range(len(program.eqns) - 1, -1, -1):
                eqn, made = program.eqns[i], program.writes[i]
                is_wide = bool(made) and made[0] in used and self._width_of(eqn.outvars[0].aval) > self._own
                if is_wide or i in program.bodies or eqn.primitive.name in _PRODUCTS:
                    used.update(program.reads[i])
        return used


def _text(aval: Any) -> str:
    return f"{'an array' if _is_array(aval) else 'a scalar'} of type {aval.dtype.name}"


def _names_a_type(eqn: Any) -> bool:
    """Whether a conversion is one that the user wrote, and not one of two operands to their common type."""
    return any(code.co_name in _NAMES_A_TYPE for code in frames_of(eqn)[0])


def _finding(line: Line, found: list[_Widened], wide: int, arrays: int) -> Finding:
    share = wide / arrays
    first = found[0]
    severity: Severity = "high" if share >= _HIGH_SHARE else "medium"
    why = f"as it is combined with {first.because}" if first.because else "as the type is named here"
    message = (
        f"{first.narrow} becomes {first.wide} {why}: {wide} of {arrays} operations on arrays of floats are in the "
        f"wider type ({share:.0%})"
    )
    narrow = first.narrow.partition("[")[0]
    advice = (
        "give what it is combined with the type of the argument (`.astype(x.dtype)`, `dtype=x.dtype`), or use a "
        "Python number, which takes the type of the array"
        if first.because
        else f"name `jnp.{narrow}` or `x.dtype` if that is enough; `float` is float64 where 64 bits are enabled"
    )
    figures: Figures = {
        "operations": wide,
        "all_operations": arrays,
        "share": round(share, 3),
        "places": len(found),
    }
    return finding_at(line, "precision", severity, figures, message, advice)
