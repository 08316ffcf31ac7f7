"""A program with its calls inlined, as XLA sees it: operations in a row, with numbers for what they read and make."""

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jax.extend.core import Literal

from partax._doctor.lines import Line, nearest_line, stack_of
from partax._doctor.program import Program
from partax._families.objects import cached_by_identity
from partax._jax.programs import held_programs

LITERAL = -1
LOOPS = ("scan", "while")  # whose inner program is compiled once, however often it runs


class Call(NamedTuple):
    """A call whose program is inlined; or a program itself, as the outermost one or that of a loop."""

    eqn: Any  # None of the outermost program
    outer: "Call | None"
    program: "FlatProgram"


class Body(NamedTuple):
    program: "FlatProgram"
    operands: Sequence[int | None]  # for each input the operand that it is; None where it changes from turn to turn


class Operation(NamedTuple):
    eqn: Any  # which is not an inlined call
    reads: tuple[int, ...]  # the numbers of its operands; `LITERAL` for a literal
    writes: tuple[int, ...]  # those of its results
    call: Call  # the innermost around it
    bodies: tuple[Body, ...]

    @property
    def name(self) -> str:
        return self.eqn.primitive.name

    @property
    def treatment(self) -> int | None:
        return TREATMENT.get(self.name)

    @property
    def size(self) -> int:
        return 1 + sum(body.program.size for body in self.bodies)

    @property
    def calls(self) -> list[Call]:  # around it, the innermost first
        calls: list[Call] = []
        call = self.call
        while call.outer is not None:
            calls.append(call)
            call = call.outer
        return calls

    @property
    def enclosing(self) -> set[str]:
        return {call.eqn.primitive.name for call in self.calls}

    @property
    def line(self) -> Line:
        """The user's line, or that of what contains it if it has none, as in jax's own functions."""
        return nearest_line((self.eqn, *(call.eqn for call in self.calls)))

    @property
    def stack(self) -> tuple[Line, ...]:
        """The lines that it comes from, with those of the calls in this program, the outermost first."""
        eqns = [call.eqn for call in self.calls if call.program is self.call.program and call is not call.program.call]
        return tuple(line for eqn in (*reversed(eqns), self.eqn) for line in stack_of(eqn))


class FlatProgram:
    """The operations of a jaxpr and of its calls. Loops and branches are programs of their own: `Operation.bodies`."""

    def __init__(
        self, jaxpr: Any, constants: Sequence[Any], programs: dict[int, "FlatProgram"], times: int = 1, eqn: Any = None,
        outer: Call | None = None,
    ) -> None:  # fmt: skip
        self.times = times  # how often it runs in one run of the outermost; the turns of a while loop count as one
        self.call = Call(eqn, outer, self)
        self.programs = programs  # by the id of the jaxpr: this one, and those around and inside it
        programs[id(jaxpr)] = self
        self.values = 0  # how many numbers there are
        self.constants: dict[int, Any] = {}  # what is captured, in calls too, by its number
        self.operations: list[Operation] = []
        self.size = 0  # how many operations there are, with those of their bodies
        self.inputs = self._new(jaxpr.invars)
        self.results = self._read(self.call, jaxpr, constants, self.inputs)

    def _new(self, variables: Sequence[Any]) -> tuple[int, ...]:
        first, self.values = self.values, self.values + len(variables)
        return tuple(range(first, self.values))

    def _read(self, call: Call, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[int]) -> list[int]:
        """Add the operations of a call, and return the numbers of its results."""
        captured = self._new(jaxpr.constvars)
        self.constants.update(zip(captured, constants, strict=False))
        numbers = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*captured, *inputs), strict=True))
        for eqn in jaxpr.eqns:
            name = eqn.primitive.name
            reads = tuple([LITERAL if type(var) is Literal else numbers[var] for var in eqn.invars])
            inner = next(held_programs(eqn), None) if name in _INLINED else None
            if inner is not None and len(inner[2].invars) == len(reads):
                _, holder, program = inner
                writes: Sequence[int] = self._read(Call(eqn, call, self), program, getattr(holder, "consts", ()), reads)
            else:
                writes = self._new(eqn.outvars)
                has_bodies = name not in TREATMENT and name != "pallas_call"  # its arrays are in the memory of a core
                bodies = tuple(self._bodies(eqn, call, reads)) if has_bodies else ()
                self.operations.append(Operation(eqn, reads, writes, call, bodies))
                self.size += 1 + sum([body.program.size for body in bodies])
            numbers.update(zip(eqn.outvars, writes, strict=True))
        return [LITERAL if type(var) is Literal else numbers[var] for var in jaxpr.outvars]

    def _bodies(self, eqn: Any, call: Call, reads: Sequence[int]) -> Iterator[Body]:
        kind = eqn.primitive.name
        times = self.times * (int(eqn.params["length"]) if kind == "scan" else 1)
        solve = getattr(eqn.params.get("jaxprs"), "solve", None)  # of a linear solve, which compiles nothing else
        programs = held_programs(eqn) if solve is None else [("", solve, solve.jaxpr)]
        for name, holder, jaxpr in programs:
            operands, count = list[int | None](reads), len(jaxpr.invars)
            if kind == "scan":
                operands = operands[: scan_parts(eqn)[0]]
            elif kind == "while":
                first, second = int(eqn.params["cond_nconsts"]), int(eqn.params["body_nconsts"])
                operands = operands[:first] if name == "cond_jaxpr" else operands[first : first + second]
            elif kind == "cond":
                operands = operands[1:]
            if kind in LOOPS:
                operands += [None] * (count - len(operands))
            program = self.programs.get(id(jaxpr))
            if program is None:
                program = FlatProgram(jaxpr, getattr(holder, "consts", ()), self.programs, times, eqn, call)
            else:
                program.times += times
            yield Body(program, operands if len(operands) == count else [None] * count)

    @functools.cached_property
    def readers(self) -> dict[int, list[Operation]]:
        readers: defaultdict[int, list[Operation]] = defaultdict(list)
        for operation in self.operations:
            for number in operation.reads:
                readers[number].append(operation)
        return readers


@cached_by_identity
def flat_program(program: Program) -> FlatProgram:
    """Time and memory grow linearly with the equations."""
    return FlatProgram(program.jaxpr.jaxpr, program.jaxpr.consts, {})


def every_operation(program: Program) -> Iterator[Operation]:
    for flat in flat_program(program).programs.values():
        yield from flat.operations


def scan_parts(eqn: Any) -> tuple[int, int]:
    """How many operands of a scan are constants and carries, by the ranks in its body, since the parameters vary."""
    _, _, body = next(held_programs(eqn))

    def count_stacked(outer: list[Any], inner: list[Any]) -> int:
        return sum(len(a.aval.shape) == len(b.aval.shape) + 1 for a, b in zip(outer, inner, strict=True))

    xs, ys = count_stacked(eqn.invars, body.invars), count_stacked(eqn.outvars, body.outvars)
    carries = len(eqn.outvars) - ys
    return len(eqn.invars) - carries - xs, carries


# What XLA does not give a buffer of its own, a rule of thumb by the names of primitives: how each treats its operands.
VIEW = 1  # its result is its operand, seen otherwise
CHEAP = 2  # elementwise, computed again for each use rather than kept
COSTLY = 3  # elementwise, kept where it is used twice
REDUCE = 4  # reads what elementwise operations give while they give it
IN_PLACE = 5  # writes into the buffer of its operand, where nothing else needs that

_NAMES: dict[int, str] = {
    # What is not listed here reads buffers and writes one, or has inner programs.
    VIEW: "reshape squeeze expand_dims transpose bitcast_convert_type copy copy_p name sharding_constraint",
    CHEAP: """
        add sub mul neg abs sign max min add_any eq ne lt le gt ge eq_to le_to lt_to and or not xor select_n clamp
        convert_element_type reduce_precision broadcast_in_dim iota integer_pow square slice split rev real imag complex
        conj is_finite floor ceil round shift_left shift_right_logical shift_right_arithmetic pad""",
    COSTLY: """
        div rem exp exp2 expm1 log log1p tanh logistic sin cos tan sinh cosh asin acos atan asinh acosh atanh atan2
        sqrt rsqrt cbrt pow erf erfc erf_inv lgamma digamma nextafter clz population_count dynamic_slice""",
    REDUCE: "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin concatenate",
    IN_PLACE: "dynamic_update_slice scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max",
}
TREATMENT: dict[str, int] = {name: treatment for treatment, names in _NAMES.items() for name in names.split()}
ELEMENTWISE = (VIEW, CHEAP, COSTLY)
# Whose inner program XLA takes as if it stood there itself.
_INLINED = frozenset({"jit", "pjit", "closed_call", "core_call", "call", "custom_jvp_call", "custom_vjp_call"})
