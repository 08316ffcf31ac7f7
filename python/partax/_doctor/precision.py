"""Finds where a program begins to compute in a wider type than that of its arguments, by line.

That is where an array of the arguments' type is combined with something wider that does not come from them: a NumPy
array, a strongly typed scalar, numbers that jax made in its default type. In half precision it is told only where such
a value is multiplied as a matrix or given back: a rotation or a norm that is cast back is meant so.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from jax.extend.core import Literal

from partax._doctor.equations import Equations
from partax._doctor.examined import Examined
from partax._doctor.finding import Figures, Finding, Severity, finding_at
from partax._doctor.fusion import INLINED
from partax._doctor.inner_programs import InnerProgram, bind_known, through_calls, user_line
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
      index: of the equation.
      narrow: the text of the type that came in.
      wide: that of the type that came out.
      because: what it is combined with; empty where the user has named the type.
      is_used: whether a product of matrices, or the result, has come of it before it was cast back.
    """

    index: int
    narrow: str
    wide: str
    because: str
    is_used: bool = False


@dataclasses.dataclass(slots=True, eq=False)
class _Origin:
    """Where a wide value has come from: what became wider for it, and the values that it was made of."""

    found: list[_Widened]
    before: list["_Origin"]
    is_used: bool = False

    def use(self) -> None:
        waiting = [self]
        while waiting:
            origin = waiting.pop()
            if not origin.is_used:
                origin.is_used = True
                waiting += origin.before
                for it in origin.found:
                    it.is_used = True


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
    reader = _Reader(examined.equations, own, examined.jaxpr.jaxpr.outvars)
    reader.read()
    share = reader.wide / max(reader.arrays, 1)
    if share < (_SMALLEST_SHARE_OF_HALF if own == _HALF else _SMALLEST_SHARE):
        return
    lines: dict[Line, list[_Widened]] = {}
    for it in reader.found:
        if (it.because and it.is_used) if own == _HALF else (it.because or share >= _HIGH_SHARE):
            line = user_line(examined.equations, it.index)
            lines.setdefault(line, []).append(it)
    for line, found in lines.items():
        yield _finding(line, found, reader.wide, reader.arrays)


def _width(aval: Any) -> int:
    """The bytes of a float, or of a part of a complex number; 0 of other types."""
    return _WIDTHS.get(getattr(getattr(aval, "dtype", None), "name", ""), 0)


def _is_array(aval: Any) -> bool:
    return math.prod(getattr(aval, "shape", ())) > 1


class _Reader:
    """Reads a program once.

    Attributes:
      found: where arrays become wider.
      wide: how many operations give arrays of wider floats.
      arrays: how many give arrays of floats.
    """

    def __init__(self, equations: Equations, own: int, results: Sequence[Any]) -> None:
        self.found: list[_Widened] = []
        self.wide = self.arrays = 0
        self._equations = equations
        self._own = own
        self._derived: set[Any] = set()  # wide values that come from arrays of the arguments' type
        self._converted: dict[Any, int] = {}  # those of them that were just converted, by the equation that did it
        self._origins: dict[Any, _Origin] = {}  # of wide values, as far as something became wider for them
        self._results = {var for var in results if type(var) is not Literal}  # and those of the bodies of loops
        self._widths: dict[Any, int] = {}

    def read(self) -> None:
        equations, own = self._equations, self._own
        for i, eqn, programs in through_calls(equations, range(len(equations)), self._bind):
            self._follow(eqn, programs)
            if programs or not eqn.outvars:
                continue
            width = self._width_of(eqn.outvars[0].aval)
            if width and _is_array(eqn.outvars[0].aval):
                self.arrays += 1
                self.wide += width > own
            if width > own:
                self._read(i, eqn)

    def _width_of(self, aval: Any) -> int:
        """The same as `_width`: the name of a dtype takes long to ask for."""
        dtype = getattr(aval, "dtype", None)
        width = self._widths.get(dtype)
        if width is None:
            width = self._widths[dtype] = _width(aval)
        return width

    def _read(self, index: int, eqn: Any) -> None:
        """An equation with a wide result."""
        operands = [var for var in eqn.invars if type(var) is not Literal]
        narrow = [var for var in operands if self._width_of(var.aval) == self._own and _is_array(var.aval)]
        result = eqn.outvars[0]
        is_derived = bool(narrow) or any(var in self._derived for var in operands)
        (self._derived.add if is_derived else self._derived.discard)(result)
        self._converted.pop(result, None)
        known = len(self.found)
        if is_derived:
            self._note(index, eqn, operands, narrow)
        before = [self._origins[var] for var in operands if var in self._origins]
        self._origins.pop(result, None)
        if before or len(self.found) > known:
            self._set_origin(result, _Origin(self.found[known:], before))

    def _note(self, index: int, eqn: Any, operands: Sequence[Any], narrow: Sequence[Any]) -> None:
        """What becomes wider by an equation."""
        result = eqn.outvars[0]
        if eqn.primitive.name == "convert_element_type":
            if narrow and _names_a_type(eqn):
                self.found.append(_Widened(index, array_text(narrow[0].aval), array_text(result.aval), ""))
            elif narrow:
                self._converted[result] = index
            return
        others = [
            var
            for var in eqn.invars
            if self._width_of(var.aval) > self._own and (type(var) is Literal or var not in self._derived)
        ]
        for var in operands if others else ():
            if var in self._converted:
                at = self._converted.pop(var)
                text = array_text(self._equations.eqns[at].invars[0].aval)
                self.found.append(_Widened(at, text, array_text(result.aval), _text(others[0].aval)))
            elif var in narrow:
                text = array_text(var.aval)
                self.found.append(_Widened(index, text, array_text(result.aval), _text(others[0].aval)))

    def _follow(self, eqn: Any, programs: Sequence[InnerProgram]) -> None:
        """What an equation does with wide values as a whole: a product, and a loop, whose results are its body's."""
        is_inlined = eqn.primitive.name in INLINED and len(programs) == 1
        if eqn.primitive.name in _PRODUCTS or (programs and not is_inlined):
            self._use(eqn.invars)
        for it in programs:
            for at, var in enumerate(it.jaxpr.outvars):
                if type(var) is not Literal:
                    is_result = not is_inlined or eqn.outvars[at] in self._results
                    (self._results.add if is_result else self._results.discard)(var)

    def _set_origin(self, var: Any, origin: _Origin) -> None:
        self._origins[var] = origin
        if var in self._results:
            origin.use()

    def _use(self, variables: Sequence[Any]) -> None:
        for var in variables:
            if type(var) is not Literal and var in self._origins:
                self._origins[var].use()

    def _bind(self, variables: Sequence[Any], given: Sequence[Any]) -> None:
        """What is not known of a wide value is taken to come from the arguments, so that nothing is said of it."""
        for var, it in zip(variables, given, strict=True):
            if self._width_of(var.aval) <= self._own:
                continue
            is_derived = it is None or (type(it) is not Literal and it in self._derived)
            (self._derived.add if is_derived else self._derived.discard)(var)
            bind_known(self._converted, [var], [it])
            bind_known(self._origins, [var], [it])
            if var in self._origins:
                self._set_origin(var, self._origins[var])


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
