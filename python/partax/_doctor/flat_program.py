"""A program with its calls inlined, as XLA sees it: equations in a row, with numbers for what they read and make."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jax.extend.core import Literal

from partax._doctor.lines import Line, nearest_line, stack_of
from partax._doctor.program import Program, read_once
from partax._jax.programs import held_programs

LITERAL = -1
LOOPS = ("scan", "while")  # whose inner program is compiled once, however often it runs


class Call(NamedTuple):
    """A call whose program is inlined; or a program itself, as the outermost one or that of a loop."""

    eqn: Any  # None of the outermost program
    outer: "Call | None"
    jaxpr: Any
    numbers: dict[Any, int]  # of its values


class Body(NamedTuple):
    """A program inside an equation."""

    program: "FlatProgram"
    operands: Sequence[int | None]  # for each input the operand that it is; None where it changes from turn to turn


Programs = dict[int, "FlatProgram"]  # by the id of the jaxpr


class FlatProgram:
    """The equations of a jaxpr in a row, none of which is a call; each value has a number, also inside calls.

    Those inside loops and branches are in programs of their own, the `bodies` of an equation. There are lists and no
    object of ours for each equation: a program may have 100,000, and the garbage collector would walk them all again
    and again.
    """

    def __init__(
        self, jaxpr: Any, constants: Sequence[Any], programs: Programs, times: int, eqn: Any, outer: Call | None
    ) -> None:
        self.jaxpr = jaxpr
        self.eqn = eqn  # that this is a body of; None of the outermost program
        self.times = times  # how often it runs in one run of the outermost; the turns of a while loop count as one
        self._programs = programs  # this one, and those around and inside it
        programs[id(jaxpr)] = self
        self.values = 0  # how many numbers there are
        self.constants: dict[int, Any] = {}  # what is captured, in calls too, by its number
        self.eqns: list[Any] = []
        self.reads: list[tuple[int, ...]] = []  # what each equation reads; `LITERAL` for a literal
        self.writes: list[tuple[int, ...]] = []
        self.treatments: list[int | None] = []  # how each treats its operands; None of what is not known
        self.calls: list[Call] = []  # the innermost around each
        self.weights: list[int] = []  # how many equations each is, with those of its bodies
        self.bodies: dict[int, list[Body]] = {}  # by the index of the equation
        captured = self._capture(jaxpr, constants)
        self.inputs = self._new(jaxpr.invars)  # the numbers of the jaxpr's inputs
        numbers = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*captured, *self.inputs), strict=True))
        self._own_call = Call(eqn, outer, jaxpr, numbers)
        self.results = self._read(self._own_call)  # and those of its outputs
        self.size = sum(self.weights)

    def _new(self, variables: Sequence[Any]) -> tuple[int, ...]:
        first, self.values = self.values, self.values + len(variables)
        return tuple(range(first, self.values))

    def _capture(self, jaxpr: Any, constants: Sequence[Any]) -> tuple[int, ...]:
        captured = self._new(jaxpr.constvars)
        self.constants.update(zip(captured, constants, strict=False))
        return captured

    def _read(self, call: Call) -> list[int]:
        """Add the equations of a call, and return the numbers of its results."""
        numbers = call.numbers
        for eqn in call.jaxpr.eqns:
            name = eqn.primitive.name
            treatment = TREATMENT.get(name, IN_PLACE if name.startswith("scatter") else None)
            reads = tuple([LITERAL if type(var) is Literal else numbers[var] for var in eqn.invars])
            bodies: list[Body] = []
            if treatment is None:
                inner, constants = _callee(eqn) if name in _INLINED else (None, ())
                if inner is not None:
                    own = (*self._capture(inner, constants), *reads)
                    of_inner = dict(zip((*inner.constvars, *inner.invars), own, strict=True))
                    numbers.update(zip(eqn.outvars, self._read(Call(eqn, call, inner, of_inner)), strict=True))
                    continue
                if name != "pallas_call":  # whose arrays are in the memory of a core
                    bodies = list(self._bodies(eqn, call, reads))
                    self.bodies.update({len(self.eqns): bodies} if bodies else {})
            writes = self._new(eqn.outvars)
            numbers.update(zip(eqn.outvars, writes, strict=True))
            self.eqns.append(eqn)
            self.reads.append(reads)
            self.writes.append(writes)
            self.treatments.append(treatment)
            self.calls.append(call)
            self.weights.append(1 + sum(body.program.size for body in bodies))
        return [LITERAL if type(var) is Literal else numbers[var] for var in call.jaxpr.outvars]

    def _bodies(self, eqn: Any, call: Call, reads: Sequence[int]) -> Iterator[Body]:
        kind = eqn.primitive.name
        times = self.times * (int(eqn.params["length"]) if kind == "scan" else 1)
        solve = getattr(eqn.params.get("jaxprs"), "solve", None)  # of a linear solve, which compiles nothing else
        programs = held_programs(eqn) if solve is None else [("", solve, solve.jaxpr)]
        for name, holder, jaxpr in programs:
            operands, count = list[int | None](reads), len(jaxpr.invars)
            if kind == "scan":
                consts = scan_parts(eqn).consts
                operands[consts:] = [None] * (len(operands) - consts)
            elif kind == "while":
                first, second = int(eqn.params["cond_nconsts"]), int(eqn.params["body_nconsts"])
                operands = operands[:first] if name == "cond_jaxpr" else operands[first : first + second]
                operands += [None] * (count - len(operands))
            elif kind == "cond":
                operands = operands[1:]
            program = self._programs.get(id(jaxpr))
            if program is None:
                program = FlatProgram(jaxpr, getattr(holder, "consts", ()), self._programs, times, eqn, call)
            else:
                program.times += times
            yield Body(program, operands if len(operands) == count else [None] * count)

    @property
    def all_programs(self) -> list["FlatProgram"]:
        return list(self._programs.values())

    @functools.cached_property
    def readers(self) -> dict[int, list[int]]:
        readers: dict[int, list[int]] = {}
        for i, reads in enumerate(self.reads):
            for number in reads:
                readers.setdefault(number, []).append(i)
        return readers

    def enclosing(self, index: int) -> Iterator[Any]:
        call: Call | None = self.calls[index]
        while call is not None and call.eqn is not None:
            yield call.eqn
            call = call.outer

    def line(self, index: int) -> Line:
        """The user's line of an equation, or of what contains it if it has none, as in jax's own functions."""
        return nearest_line((self.eqns[index], *self.enclosing(index)))

    def stack(self, index: int) -> tuple[Line, ...]:
        """The lines that an equation comes from, with those of the calls in this program, the outermost first."""
        eqns, call = [self.eqns[index]], self.calls[index]
        while call is not self._own_call and call.outer is not None:
            eqns.append(call.eqn)
            call = call.outer
        return tuple(line for eqn in reversed(eqns) for line in stack_of(eqn))


class Place(NamedTuple):
    program: FlatProgram
    at: int

    @property
    def eqn(self) -> Any:
        return self.program.eqns[self.at]

    @property
    def treatment(self) -> int | None:
        return self.program.treatments[self.at]

    @property
    def line(self) -> Line:
        return self.program.line(self.at)


@read_once
def flat_program(program: Program) -> FlatProgram:
    """Time and memory grow linearly with the equations."""
    return FlatProgram(program.jaxpr.jaxpr, program.jaxpr.consts, {}, 1, None, None)


def places_of(program: Program, *names: str) -> list[Place]:
    programs = flat_program(program).all_programs
    return [Place(flat, i) for flat in programs for i, eqn in enumerate(flat.eqns) if eqn.primitive.name in names]


def _callee(eqn: Any) -> tuple[Any, Sequence[Any]]:
    """The program that a call runs, and what that has captured; None where its inputs are not those of the call."""
    _, holder, inner = next(held_programs(eqn), ("", None, None))
    is_plain = inner is not None and len(inner.invars) == len(eqn.invars)
    return (inner, getattr(holder, "consts", ())) if is_plain else (None, ())


class ScanParts(NamedTuple):
    """How many operands of a scan are these."""

    consts: int
    carries: int


def scan_parts(eqn: Any) -> ScanParts:
    """Known by the ranks of its body's operands: each jax has the numbers in parameters of its own."""
    _, _, body = next(held_programs(eqn))

    def count_stacked(outer: list[Any], inner: list[Any]) -> int:
        return sum(len(a.aval.shape) == len(b.aval.shape) + 1 for a, b in zip(outer, inner, strict=True))

    xs, ys = count_stacked(eqn.invars, body.invars), count_stacked(eqn.outvars, body.outvars)
    carries = len(eqn.outvars) - ys
    return ScanParts(len(eqn.invars) - carries - xs, carries)


# What XLA does not give a buffer of its own, a rule of thumb by the names of primitives: how each treats its operands.
VIEW = 1  # its result is its operand, seen otherwise
CHEAP = 2  # elementwise, computed again for each use rather than kept
COSTLY = 3  # elementwise, kept where it is used twice
REDUCE = 4  # reads what elementwise operations give while they give it
IN_PLACE = 5  # writes into the buffer of its operand, where nothing else needs that

_NAMES: dict[int, str] = {
    # What is not listed here reads buffers and writes one, or has inner programs. `scatter`s write in place.
    VIEW: "reshape squeeze expand_dims transpose bitcast_convert_type copy copy_p stop_gradient name "
    "sharding_constraint",
    CHEAP: """
        add sub mul neg abs sign max min add_any eq ne lt le gt ge eq_to le_to lt_to and or not xor select_n clamp
        convert_element_type reduce_precision broadcast_in_dim iota integer_pow square slice split rev real imag complex
        conj is_finite floor ceil round shift_left shift_right_logical shift_right_arithmetic pad""",
    COSTLY: """
        div rem exp exp2 expm1 log log1p tanh logistic sin cos tan sinh cosh asin acos atan asinh acosh atanh atan2
        sqrt rsqrt cbrt pow erf erfc erf_inv lgamma digamma nextafter clz population_count dynamic_slice""",
    REDUCE: "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin concatenate",
    IN_PLACE: "dynamic_update_slice",
}
TREATMENT: dict[str, int] = {name: treatment for treatment, names in _NAMES.items() for name in names.split()}
ELEMENTWISE = (VIEW, CHEAP, COSTLY)
# Whose inner program XLA takes as if it stood there itself.
_INLINED = frozenset({"jit", "pjit", "closed_call", "core_call", "call", "custom_jvp_call", "custom_vjp_call"})
