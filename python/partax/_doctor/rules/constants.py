"""Finds arrays that a program has captured, and operations on them that XLA evaluates while it compiles.

The seconds that its slow evaluator takes are measured: `x * operation(captured)` of 10,000 to 40,000,000 elements,
compiled once for the CPU on two shared cores. They tell seconds from minutes, no more.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from partax._doctor.array_types import bytes_of
from partax._doctor.captured_arrays import Holder, holders
from partax._doctor.figures import bytes_text, seconds_text
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.flat_program import ELEMENTWISE, LITERAL, TREATMENT, FlatProgram, Place, flat_program
from partax._doctor.lines import NOWHERE, Line, grouped
from partax._doctor.program import Program
from partax._pytree.short_text import array_text

# Of all captured arrays together: each program has its own copy, and XLA takes 18 ms for each MiB.
_FEWEST_BYTES = 1 << 20
_HIGH_BYTES = 64 << 20  # from which it takes a second
_SMALLEST_SHARE = 0.1  # of those bytes; all that hold less are one finding
# From which XLA itself warns ("Constant folding an instruction is taking > 1s").
_FEWEST_SECONDS = 1.0
_HIGH_SECONDS = 10.0


def find(program: Program) -> list[Finding]:
    constants = _Constants(program)
    total = sum(it.bytes for it in constants.captured)
    findings: list[Finding] = []
    if total >= _FEWEST_BYTES:
        groups = _groups(program, constants.captured)
        small = [array for it in groups if it.bytes < total * _SMALLEST_SHARE for array in it.arrays]
        large = [it for it in groups if it.bytes >= total * _SMALLEST_SHARE]
        rest = _Group(None, sorted(small, key=lambda it: -it.bytes))
        findings += [_of_group(program, it) for it in (*large, rest) if it in large or it.bytes >= _FEWEST_BYTES]
    return findings + _folded(constants.folded)


class _Captured:
    def __init__(self, value: Any, is_hoisted: bool) -> None:
        self.value, self.bytes = value, bytes_of(value)
        self.is_hoisted = is_hoisted  # whether each call passes it as a hidden argument: then it is not compiled in
        self.line = NOWHERE  # of the first equation that uses it


# What a value is known to be: the index of a captured array, or one of these. All else is not in the table.
_COMPUTED = -1  # from captured arrays alone
_FILLED = -2  # the same number in all places, like `jnp.ones`


class _Constants:
    """What a program has captured, and what XLA evaluates while it compiles, with the seconds."""

    def __init__(self, program: Program) -> None:
        self.captured: list[_Captured] = []
        self.folded: list[tuple[Place, float]] = []
        self._numbers: dict[int, int] = {}  # of arrays, by identity
        self._read(flat_program(program), {})

    def _read(self, flat: FlatProgram, known: dict[int, int]) -> None:
        known.update((number, self._number(value, False)) for number, value in flat.constants.items())
        for i, (eqn, reads) in enumerate(zip(flat.eqns, flat.reads, strict=True)):
            bodies = flat.bodies.get(i, ())
            is_known, depends_on_captured = True, False
            for var, number in zip(eqn.invars, reads, strict=True):
                what = known.get(number)
                if number == LITERAL and var.aval.shape:
                    self._use(self._number(var.val, True), flat, i)
                    is_known = False  # XLA has it as a parameter
                elif number != LITERAL and what is None:
                    is_known = False
                elif what is not None and what != _FILLED:
                    depends_on_captured = True
                    if what >= 0 and not any(number in body.operands for body in bodies):
                        self._use(what, flat, i)
            for body in bodies:
                operands = zip(body.program.inputs, body.operands, strict=True)
                self._read(body.program, {number: known[it] for number, it in operands if it in known})
            result = self._result(Place(flat, i), depends_on_captured) if is_known and not bodies else None
            if result is not None:
                known.update((number, result) for number in flat.writes[i])

    def _result(self, place: Place, depends_on_captured: bool) -> int | None:
        """What an operation on known operands gives."""
        eqn, name = place.eqn, place.eqn.primitive.name
        if not eqn.invars or not eqn.outvars or eqn.effects:
            return None
        if not depends_on_captured and not name.startswith("reduce_window"):
            return _FILLED if TREATMENT.get(name) in ELEMENTWISE else None
        seconds = _folding_seconds(eqn)
        if seconds:
            self.folded.append((place, seconds))
        return None if seconds is None else _COMPUTED

    def _number(self, value: Any, is_hoisted: bool) -> int:
        number = self._numbers.setdefault(id(value), len(self._numbers))
        if number == len(self.captured):
            self.captured.append(_Captured(value, is_hoisted))
        return number

    def _use(self, number: int, flat: FlatProgram, index: int) -> None:
        if self.captured[number].line is NOWHERE:
            self.captured[number].line = flat.line(index)


class _Group(NamedTuple):
    holder: Holder | None  # without one they are of one line
    arrays: list[_Captured]  # the largest first

    @property
    def bytes(self) -> int:
        return sum(it.bytes for it in self.arrays)


def _groups(program: Program, captured: list[_Captured]) -> list[_Group]:
    """The arrays of each variable, or else of each line; the largest first."""
    arrays = sorted(captured, key=lambda it: -it.bytes)
    groups: dict[object, _Group] = {}
    variables = holders([it.value for it in arrays], program.function, program.statics)
    for array, holder in zip(arrays, variables, strict=True):
        groups.setdefault(array.line if holder is None else holder[:2], _Group(holder, [])).arrays.append(array)
    return sorted(groups.values(), key=lambda group: -group.bytes)


def _of_group(program: Program, group: _Group) -> Finding:
    first, count, size = group.arrays[0], len(group.arrays), group.bytes
    what = f"{array_text(first.value) if count == 1 else f'{count} arrays'} ({bytes_text(size)})"
    severity: Severity = "low" if first.is_hoisted else "high" if size >= _HIGH_BYTES else "medium"
    how = "each call passes it as a hidden argument" if first.is_hoisted else "it is compiled in as a constant"
    of, name, path = " of no variable of its own" if program.traced is not None else "", "it", ""
    message = f"the program has captured {what}{of}: {how}"
    if group.holder is not None:
        path = group.holder.name if count == 1 else group.holder.root
        name = f"`{path}`"
        message = f"{group.holder.kind} {name} holds {what}, which the program has captured: {how}"
    advice = f"pass {name} as an argument of `{program.name}`, or make it a part of the model that is one: then "
    advice += "programs share it, and a new value needs no new trace"
    return finding_at(first.line, "constant", severity, message, advice, path, bytes=size, arrays=count)


def _folded(folded: list[tuple[Place, float]]) -> list[Finding]:
    if sum(seconds for _, seconds in folded) < _FEWEST_SECONDS:
        return []
    by_line: dict[Line, list[tuple[Place, float]]] = grouped(folded, lambda it: it[0].line)
    by_seconds = sorted(((sum(it for _, it in places), line) for line, places in by_line.items()), reverse=True)
    findings: list[Finding] = []
    for seconds, line in by_seconds:
        if findings and seconds < _FEWEST_SECONDS:
            break
        eqn = max(by_line[line], key=lambda it: it[1])[0].eqn
        message = f"`{eqn.primitive.name}` of {array_text(eqn.invars[0].aval)} depends on no argument: XLA evaluates "
        message += f"it while it compiles, which takes about {seconds_text(float(f'{seconds:.1g}'))}"
        advice = "compute it once outside of the function and pass the result as an argument, or pass the array that "
        advice += "it is computed from: what depends on an argument is not evaluated by the compiler"
        severity: Severity = "high" if seconds >= _HIGH_SECONDS else "medium"
        figures = {"folding_seconds": round(seconds, 2), "operations": len(by_line[line])}
        findings.append(finding_at(line, "constant", severity, message, advice, **figures))
    return findings


# Larger results XLA leaves to be computed when the program runs (`kMaximumConstantSizeElements`).
_LARGEST = 45_000_000
# What XLA does not evaluate: Fourier transforms, what runs on the host or in a library, loops.
_NEVER = {
    "cholesky", "lu", "qr", "geqrf", "householder_product", "eigh", "eig", "svd", "schur", "triangular_solve",
    "iota", "fft", "rng_bit_generator", "threefry2x32", "pure_callback", "io_callback", "debug_callback",
    "debug_print", "scan", "while", "cond", "custom_call", "ffi_call", "pallas_call", "shard_map", "device_put",
    "sharding_constraint", "optimization_barrier", "top_k",
}  # fmt: skip
_ELEMENT = 0.08e-6
# The seconds of an operation by its equation and the elements of its result and its operand; by how its name begins.
_SECONDS: dict[str, Callable[[Any, int, int], float]] = {
    # One of n log2(n) comparisons: a sort of 4e3 elements takes 0.8 s, of 1e4 5.8 s, of 1e5 45 s.
    "sort": lambda eqn, _, size: size * math.log2(max(eqn.invars[0].aval.shape[eqn.params["dimension"]], 2)) * 25e-6,
    "cum": lambda eqn, _, operand: operand * 29e-6,  # 1e5 elements take 2.9 s
    # One element in one window: a 3 x 3 window over 1e5 elements takes 3.7 s.
    "reduce_window": lambda eqn, result, _: result * math.prod(eqn.params["window_dimensions"]) * 4e-6,
    "scatter": lambda eqn, result, _: _scatter_seconds(eqn, result),
    "gather": lambda eqn, result, _: result * 0.3e-6,  # 1e6 elements take 0.15 to 0.4 s, rows less
    "dot_general": lambda eqn, *_: _multiplications(eqn) * 0.35e-9,  # 3162 x 3162 takes 10 s
    "conv_general_dilated": lambda eqn, *_: _multiplications(eqn) * 0.1e-6,  # 1e6 elements and 5 x 5 take 2.8 s
    # XLA adds floats by a loop of its own, next to nothing; it calls its evaluator for each element of all others:
    # a maximum of 8e6 takes 13 to 15 s, `all` of 1e6 1 to 1.7 s, an `argmax` of 6e5 3.7 s and of 8e6 58 to 77 s.
    "reduce_sum": lambda eqn, _, size: 0.0 if jnp.issubdtype(eqn.invars[0].aval.dtype, jnp.inexact) else size * 2e-6,
    "reduce_": lambda eqn, _, operand: operand * 1.6e-6,
    "arg": lambda eqn, _, operand: operand * 7e-6,
    # What costs next to nothing, or is evaluated as a part of what uses it.
    **dict.fromkeys(("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "stop_gradient", "copy"), lambda *_: 0.0),
    # 8e6 elements of `sin`, `*`, `where` or a transpose take 0.4 to 1 s more than the captured array alone.
    "": lambda eqn, result, _: result * _ELEMENT,
}


def _folding_seconds(eqn: Any) -> float | None:
    """How long XLA takes to evaluate an operation whose operands are all known, about; None where it does not."""
    name = eqn.primitive.name
    result, operand = (math.prod(getattr(var.aval, "shape", (0,))) for var in (eqn.outvars[0], eqn.invars[0]))
    if name in _NEVER or name.startswith("random_") or max(result, operand) > _LARGEST:
        return None
    return next(seconds for begin, seconds in _SECONDS.items() if name.startswith(begin))(eqn, result, operand)


def _scatter_seconds(eqn: Any, result: int) -> float:
    """1e6 updates take 6.7 s; but one place is a slice that is written, and that is quick: 4e7 elements take 0.4 s."""
    indices, updates = eqn.invars[1].aval.shape, eqn.invars[2].aval.shape
    places = math.prod(indices) // max(indices[-1], 1)
    return math.prod(updates) * 6.7e-6 if places > 1 else result * _ELEMENT / 8


def _multiplications(eqn: Any) -> int:
    """Those of a product of matrices or a convolution."""
    operand, result = eqn.invars[0].aval, eqn.outvars[0].aval
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return math.prod(result.shape) * math.prod(operand.shape[axis] for axis in contracted)
    kernel = eqn.invars[1].aval.shape
    return math.prod(result.shape) * math.prod(kernel) // max(kernel[eqn.params["dimension_numbers"].rhs_spec[0]], 1)
