"""Finds arrays that a program has captured, and operations on them that XLA evaluates while it compiles.

The seconds that its slow evaluator takes are measured: `x * operation(captured)` of 10,000 to 40,000,000 elements,
compiled once for the CPU on two shared cores. They tell seconds from minutes, no more.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.extend.core import Literal

from partax._doctor import flat_program as flat
from partax._doctor.equations import bytes_of
from partax._doctor.examined import Examined
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.lines import NOWHERE, Line, grouped, is_of_jax
from partax._pytree.short_text import array_text
from partax._report.captured_arrays import Holder, holders
from partax._report.table import bytes_text, seconds_text

# Of all captured arrays together: each program has its own copy, and XLA takes 18 ms for each MiB.
_FEWEST_BYTES = 1 << 20
_HIGH_BYTES = 64 << 20  # from which it takes a second
_SMALLEST_SHARE = 0.1  # of those bytes; what holds less is told in one finding with all such
# From which XLA itself warns ("Constant folding an instruction is taking > 1s").
_FEWEST_SECONDS = 1.0
_HIGH_SECONDS = 10.0


# What a value is known to be: the index of a captured array, or one of these. All else is not in the table.
_COMPUTED = -1  # from captured arrays alone
_FILLED = -2  # the same number in all places, as of `jnp.ones`


@dataclasses.dataclass
class Captured:
    value: Any
    is_hoisted: bool  # whether each call passes it as a hidden argument: then it is not compiled in
    line: Line = NOWHERE  # of the first equation that uses it

    @property
    def bytes(self) -> int:
        return bytes_of(self.value)


class _Captures:
    def __init__(self, examined: Examined) -> None:
        self.arrays: list[Captured] = []
        self.folded: list[tuple[flat.Place, float]] = []  # what XLA evaluates while it compiles, with seconds
        self._numbers: dict[int, int] = {}  # of arrays, by identity
        # A plain function around a jit is no program in its calls: what it passes to that is an argument there.
        self._is_plain = examined.traced is not None and examined.wrapper is examined.function
        if _may_have(examined):
            self._read(flat.flat_program(examined), {})

    def _read(self, program: flat.FlatProgram, known: dict[int, int]) -> None:
        passed = _passed(program) if self._is_plain else set[int]()
        captured = ((number, value) for number, value in program.constants.items() if number not in passed)
        known.update((number, self._number(value, False)) for number, value in captured)
        for i, (eqn, reads) in enumerate(zip(program.eqns, program.reads, strict=True)):
            bodies = program.bodies.get(i, ())
            is_known, holds = True, False
            for var, number in zip(eqn.invars, reads, strict=True):
                what = None if number in passed else known.get(number)
                if number == flat.LITERAL and var.aval.shape:
                    self._use(self._number(var.val, True), program, i)
                    is_known = False  # XLA has it as a parameter
                elif number != flat.LITERAL and what is None:
                    is_known = False
                elif what is not None and what != _FILLED:
                    holds = True
                    if what >= 0 and not any(number in body.given for body in bodies):
                        self._use(what, program, i)
            for body in bodies:
                given = zip(body.program.inputs, body.given, strict=True)
                self._read(body.program, {number: known[it] for number, it in given if it in known})
            made = self._made(flat.Place(program, i), holds) if is_known and not bodies else None
            if made is not None:
                known.update((number, made) for number in program.writes[i])

    def _made(self, place: flat.Place, holds: bool) -> int | None:
        """What an operation on known operands gives."""
        eqn, name = place.eqn, place.eqn.primitive.name
        if not eqn.invars or not eqn.outvars or eqn.effects:
            return None
        if not holds and not name.startswith("reduce_window"):
            return _FILLED if flat.TREATMENT.get(name) in flat.ELEMENTWISE else None
        seconds = folding_seconds(eqn)
        if seconds:
            self.folded.append((place, seconds))
        return None if seconds is None else _COMPUTED

    def _number(self, value: Any, is_hoisted: bool) -> int:
        number = self._numbers.setdefault(id(value), len(self._numbers))
        if number == len(self.arrays):
            self.arrays.append(Captured(value, is_hoisted))
        return number

    def _use(self, number: int, program: flat.FlatProgram, index: int) -> None:
        if self.arrays[number].line is NOWHERE:
            self.arrays[number].line = program.line(index)


def _may_have(examined: Examined) -> bool:
    """Whether a program may have captured anything, or have XLA evaluate something though it has not."""
    equations = examined.equations
    if examined.jaxpr.consts or any(name.startswith("reduce_window") for name in set(equations.names)):
        return True
    literals = (var.aval for eqn in equations.eqns for var in eqn.invars if type(var) is Literal)
    return any(getattr(it, "shape", ()) for it in literals) or any(
        getattr(holder, "consts", ()) for _, holder, _ in equations.held()
    )


def _passed(program: flat.FlatProgram) -> set[int]:
    """The values that a function passes to a jit, not one of jax's own, of which it returns what that gives."""
    eqn = next((it for it in program.jaxpr.eqns if it.outvars == program.jaxpr.outvars), None)
    if eqn is None or eqn.primitive.name not in ("jit", "pjit"):
        return set()
    call = next((it for it in program.calls if it.eqn is eqn and not is_of_jax(it.jaxpr)), None)
    return set() if call is None else {call.numbers[var] for var in call.jaxpr.invars}


class _Group(NamedTuple):
    holder: Holder | None  # without one they are of one line
    arrays: list[Captured]  # the largest first

    @property
    def bytes(self) -> int:
        return sum(it.bytes for it in self.arrays)

    @property
    def name(self) -> str:
        if self.holder is None:
            return ""
        return self.holder.name if len(self.arrays) == 1 else self.holder.root


def find(examined: Examined) -> Iterator[Finding]:
    captures = _Captures(examined)
    total = sum(it.bytes for it in captures.arrays)
    if total >= _FEWEST_BYTES:
        groups = _groups(examined, captures.arrays)
        yield from (_captured(examined, it) for it in groups if it.bytes >= total * _SMALLEST_SHARE)
        small = [array for it in groups if it.bytes < total * _SMALLEST_SHARE for array in it.arrays]
        rest = _Group(None, sorted(small, key=lambda it: -it.bytes))
        if rest.bytes >= _FEWEST_BYTES:
            yield _captured(examined, rest)
    yield from _folded(captures.folded)


def _groups(examined: Examined, arrays: list[Captured]) -> list[_Group]:
    arrays = sorted(arrays, key=lambda it: -it.bytes)
    found: dict[object, _Group] = {}
    found_in = holders([it.value for it in arrays], examined.function, examined.statics)
    for captured, holder in zip(arrays, found_in, strict=True):
        key = captured.line if holder is None else holder[:2]
        found.setdefault(key, _Group(holder, [])).arrays.append(captured)
    return sorted(found.values(), key=lambda group: -group.bytes)


def _captured(examined: Examined, group: _Group) -> Finding:
    first, count, size = group.arrays[0], len(group.arrays), group.bytes
    what = array_text(first.value) if count == 1 else f"{count} arrays"
    severity: Severity = "low" if first.is_hoisted else "high" if size >= _HIGH_BYTES else "medium"
    how = "each call passes it as a hidden argument" if first.is_hoisted else "it is compiled in as a constant"
    of, name = " of no variable of its own" if examined.traced is not None else "", "it"
    message = f"the program has captured {what} ({bytes_text(size)}){of}: {how}"
    if group.holder is not None:
        name = f"`{group.name}`"
        message = f"{group.holder.kind} {name} holds {what} ({bytes_text(size)}), which the program has captured: {how}"
    advice = f"pass {name} as an argument of `{examined.name}`, or make it a part of the model that is one: then "
    advice += "programs share it, and a new value needs no new trace"
    return finding_at(first.line, "constant", severity, message, advice, group.name, bytes=size, arrays=count)


def _folded(folded: list[tuple[flat.Place, float]]) -> Iterator[Finding]:
    is_much = sum(seconds for _, seconds in folded) >= _FEWEST_SECONDS
    lines = grouped(folded if is_much else (), lambda it: it[0].line)
    by_seconds = sorted(((sum(it for _, it in found), line) for line, found in lines.items()), reverse=True)
    for at, (seconds, line) in enumerate(by_seconds):
        if at and seconds < _FEWEST_SECONDS:
            return
        eqn = max(lines[line], key=lambda it: it[1])[0].eqn
        message = f"`{eqn.primitive.name}` of {array_text(eqn.invars[0].aval)} depends on no argument: XLA evaluates "
        message += f"it while it compiles, which takes about {seconds_text(float(f'{seconds:.1g}'))}"
        advice = "compute it once outside of the function and pass the result as an argument, or pass the array that "
        advice += "it is computed from: what depends on an argument is not evaluated by the compiler"
        severity: Severity = "high" if seconds >= _HIGH_SECONDS else "medium"
        figures = {"folding_seconds": round(seconds, 2), "operations": len(lines[line])}
        yield finding_at(line, "constant", severity, message, advice, **figures)


# Larger results XLA leaves to be computed when the program runs (`kMaximumConstantSizeElements`).
_LARGEST = 45_000_000
# What XLA does not evaluate: Fourier transforms, what runs on the host or in a library, loops.
_NEVER = flat.DECOMPOSITIONS | {
    "iota", "fft", "rng_bit_generator", "threefry2x32", "pure_callback", "io_callback", "debug_callback", "debug_print",
    "scan", "while", "cond", "custom_call", "ffi_call", "pallas_call", "shard_map", "device_put", "sharding_constraint",
    "optimization_barrier", "top_k",
}  # fmt: skip
# The seconds of an operation by its equation and the elements of its result and its operand; by how its name begins.
_SECONDS: dict[str, Callable[[Any, int, int], float]] = {
    # One of n log2(n) comparisons: a sort of 4e3 elements takes 0.8 s, of 1e4 5.8 s, of 1e5 45 s.
    "sort": lambda eqn, _, size: size * math.log2(max(eqn.invars[0].aval.shape[eqn.params["dimension"]], 2)) * 25e-6,
    "cum": lambda eqn, _, operand: operand * 29e-6,  # 1e5 elements take 2.9 s
    # One element in one window: a 3 x 3 window over 1e5 elements takes 3.7 s.
    "reduce_window": lambda eqn, result, _: result * math.prod(eqn.params["window_dimensions"]) * 4e-6,
    "scatter": lambda eqn, result, _: _scatter_seconds(eqn, result),
    "gather": lambda eqn, result, _: result * 0.3e-6,  # 1e6 elements take 0.15 to 0.4 s, rows less
    "dot_general": lambda eqn, *_: flat.multiplications(eqn) * 0.35e-9,  # 3162 x 3162 takes 10 s
    "conv_general_dilated": lambda eqn, *_: flat.multiplications(eqn) * 0.1e-6,  # 1e6 elements and 5 x 5 take 2.8 s
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
_ELEMENT = 0.08e-6


def folding_seconds(eqn: Any) -> float | None:
    """How long XLA takes to evaluate an operation whose operands are all known, about; None where it does not."""
    name = eqn.primitive.name
    result, operand = _size_of(eqn.outvars[0]), _size_of(eqn.invars[0])
    if name in _NEVER or name.startswith("random_") or max(result, operand) > _LARGEST:
        return None
    return next(seconds for begin, seconds in _SECONDS.items() if name.startswith(begin))(eqn, result, operand)


def _scatter_seconds(eqn: Any, result: int) -> float:
    """1e6 updates take 6.7 s; but one place is a slice that is written, and that is quick: 4e7 elements take 0.4 s."""
    places = _size_of(eqn.invars[1]) // max(eqn.invars[1].aval.shape[-1], 1)
    return _size_of(eqn.invars[2]) * 6.7e-6 if places > 1 else result * _ELEMENT / 8


def _size_of(var: Any) -> int:
    return math.prod(var.aval.shape) if hasattr(var.aval, "shape") else 0
