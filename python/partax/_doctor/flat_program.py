"""A program with its calls inlined, as XLA sees it: equations in a row, with numbers for what they read and make."""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jax.extend.core import Literal

from partax._doctor.equations import bytes_of, held_programs, scan_parts
from partax._doctor.examined import Examined, kept
from partax._doctor.lines import Line, nearest_line

LITERAL = -1
_NO_BODIES = ("pallas_call",)  # its arrays are in the memory of a core


class Call(NamedTuple):
    """A call whose program is read where it stands; or a program itself, as the outermost one or that of a loop."""

    eqn: Any  # None of the outermost program
    parent: "Call | None"
    jaxpr: Any
    numbers: dict[Any, int]  # of its values


class Body(NamedTuple):
    """A program inside of an equation."""

    program: "FlatProgram"
    given: Sequence[int | None]  # for each input the operand that it is; None for what changes from turn to turn


class FlatProgram:
    """The equations of a jaxpr in a row, none of which is a call; each value has a number, also inside of calls.

    Those inside of loops and branches are in other programs: this may be one of such, `around` which an equation is.
    """

    def __init__(
        self,
        jaxpr: Any,
        constants: Sequence[Any],
        known: dict[int, "FlatProgram"],
        around: Any = None,
        parent: Call | None = None,
    ) -> None:
        self.jaxpr, self.around = jaxpr, around
        self._known = known  # this one and those around and inside of it, by the id of the jaxpr
        known[id(jaxpr)] = self
        self.values = 0  # how many numbers there are
        self.constants: dict[int, Any] = {}  # what is captured, in calls too, by its number
        self.constant_bytes = 0
        # For each equation, what it reads (`LITERAL` for a literal) and makes, `treatment_of` it, and the call that it
        # is inside of; and by its index the programs inside of it.
        self.eqns: list[Any] = []
        self.reads: list[tuple[int, ...]] = []
        self.writes: list[tuple[int, ...]] = []
        self.treatments: list[int | None] = []
        self.calls: list[Call] = []
        self.bodies: dict[int, list[Body]] = {}
        captured = self._capture(jaxpr, constants)
        self.inputs = self._new(jaxpr.invars)  # the numbers of the jaxpr's inputs
        numbers = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*captured, *self.inputs), strict=True))
        self.results = self._read(Call(around, parent, jaxpr, numbers))  # and those of its outputs

    def _new(self, variables: Sequence[Any]) -> tuple[int, ...]:
        first, self.values = self.values, self.values + len(variables)
        return tuple(range(first, self.values))

    def _capture(self, jaxpr: Any, constants: Sequence[Any]) -> tuple[int, ...]:
        captured = self._new(jaxpr.constvars)
        self.constants.update(zip(captured, constants, strict=False))
        self.constant_bytes += sum(bytes_of(var.aval) for var in jaxpr.constvars)
        return captured

    def _read(self, call: Call) -> list[int]:
        """Adds the equations of a call; the numbers of its results."""
        known = call.numbers
        for eqn in call.jaxpr.eqns:
            name = eqn.primitive.name
            treatment = TREATMENT.get(name)
            given = tuple([LITERAL if type(var) is Literal else known[var] for var in eqn.invars])
            if treatment is None:
                inner, constants = _called(eqn) if name in INLINED else (None, ())
                if inner is not None:
                    own = (*self._capture(inner, constants), *given)
                    numbers = dict(zip((*inner.constvars, *inner.invars), own, strict=True))
                    known.update(zip(eqn.outvars, self._read(Call(eqn, call, inner, numbers)), strict=True))
                    continue
                treatment = treatment_of(eqn)
                bodies = [] if treatment is not None or name in _NO_BODIES else list(self._bodies(eqn, call, given))
                if bodies:
                    self.bodies[len(self.eqns)] = bodies
            made = self._new(eqn.outvars)
            known.update(zip(eqn.outvars, made, strict=True))
            self.eqns.append(eqn)
            self.reads.append(given)
            self.writes.append(made)
            self.treatments.append(treatment)
            self.calls.append(call)
        return [LITERAL if type(var) is Literal else known[var] for var in call.jaxpr.outvars]

    def _bodies(self, eqn: Any, call: Call, reads: Sequence[int]) -> Iterator[Body]:
        for name, holder, jaxpr in held_programs(eqn):
            kind, given, count = eqn.primitive.name, list[int | None](reads), len(jaxpr.invars)
            if kind == "scan":
                kept = scan_parts(eqn).consts
                given[kept:] = [None] * (len(given) - kept)
            elif kind == "while":
                first, second = int(eqn.params["cond_nconsts"]), int(eqn.params["body_nconsts"])
                given = given[:first] if name == "cond_jaxpr" else given[first : first + second]
                given += [None] * (count - len(given))
            elif kind == "cond":
                given = given[1:]
            constants = getattr(holder, "consts", ())
            program = self._known.get(id(jaxpr)) or FlatProgram(jaxpr, constants, self._known, eqn, call)
            yield Body(program, given if len(given) == count else [None] * count)

    @property
    def all(self) -> list["FlatProgram"]:
        return list(self._known.values())

    @functools.cached_property
    def makers(self) -> dict[int, int]:
        """The index of the equation that makes each value, but for inputs and constants."""
        return {number: i for i, made in enumerate(self.writes) for number in made}

    @functools.cached_property
    def readers(self) -> dict[int, list[int]]:
        readers: dict[int, list[int]] = {}
        for i, reads in enumerate(self.reads):
            for number in reads:
                readers.setdefault(number, []).append(i)
        return readers

    def line(self, index: int) -> Line:
        """The user's line of an equation; of what it is inside of where it has none, as in jax's own functions."""
        around = [self.eqns[index]]
        call = self.calls[index]
        while call.parent is not None:
            around.append(call.eqn)
            call = call.parent
        return nearest_line(around)


class Place(NamedTuple):
    program: FlatProgram
    at: int

    @property
    def eqn(self) -> Any:
        return self.program.eqns[self.at]

    @property
    def line(self) -> Line:
        return self.program.line(self.at)


@kept
def flat_program(examined: Examined) -> FlatProgram:
    """Time and memory grow linearly with the equations."""
    return FlatProgram(examined.jaxpr.jaxpr, examined.jaxpr.consts, {})


def _called(eqn: Any) -> tuple[Any, Sequence[Any]]:
    """The program that a call runs, and what that has captured; None where its inputs are not those of the call."""
    _, holder, inner = next(held_programs(eqn), ("", None, None))
    is_plain = inner is not None and len(inner.invars) == len(eqn.invars)
    return (inner, getattr(holder, "consts", ())) if is_plain else (None, ())


# What XLA does not give a buffer of its own, a rule of thumb by the names of primitives: how each treats its operands.
OPAQUE = 0  # reads buffers and writes one
VIEW = 1  # its result is its operand, seen otherwise
CHEAP = 2  # elementwise, computed again for each use rather than kept
COSTLY = 3  # elementwise, kept where it is used twice
REDUCE = 4  # reads what elementwise operations give as they give it
IN_PLACE = 5  # writes into the buffer of its operand, where nothing else needs that

_NAMES: dict[int, str] = {
    # Without inner programs, all of them: what is not named here is asked for some.
    OPAQUE: """
        dot_general conv_general_dilated gather sort top_k cumsum cumprod cummax cummin cumlogsumexp fft
        random_bits random_seed random_split random_fold_in random_wrap random_unwrap rng_bit_generator threefry2x32
        reduce_window_sum reduce_window_max reduce_window_min cholesky lu qr eigh svd triangular_solve
    """,
    VIEW: """
        reshape squeeze expand_dims transpose bitcast_convert_type copy copy_p stop_gradient name sharding_constraint
    """,
    CHEAP: """
        add sub mul neg abs sign max min add_any eq ne lt le gt ge eq_to le_to lt_to and or not xor select_n clamp
        convert_element_type reduce_precision broadcast_in_dim iota integer_pow square slice split rev real imag complex
        conj is_finite floor ceil round shift_left shift_right_logical shift_right_arithmetic pad
    """,
    COSTLY: """
        div rem exp exp2 expm1 log log1p tanh logistic sin cos tan sinh cosh asin acos atan asinh acosh atanh atan2
        sqrt rsqrt cbrt pow erf erfc erf_inv lgamma digamma nextafter clz population_count dynamic_slice
    """,
    REDUCE: "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin concatenate",
    IN_PLACE: "dynamic_update_slice",
}
TREATMENT: dict[str, int] = {name: treatment for treatment, names in _NAMES.items() for name in names.split()}
ELEMENTWISE = (VIEW, CHEAP, COSTLY)
# Whose inner program XLA takes as if it stood there itself.
INLINED = frozenset({"jit", "pjit", "closed_call", "core_call", "call", "custom_jvp_call", "custom_vjp_call"})
# Of matrices, by calls of libraries.
DECOMPOSITIONS = frozenset(
    {"cholesky", "lu", "qr", "geqrf", "householder_product", "eigh", "eig", "svd", "schur", "triangular_solve"}
)


def treatment_of(eqn: Any) -> int | None:
    """How an operation treats its operands; None of one that is not known, and may have inner programs."""
    name = eqn.primitive.name
    found = TREATMENT.get(name)
    return IN_PLACE if found is None and name.startswith("scatter") else found


def multiplications(eqn: Any) -> int:
    """Those of a product of matrices or a convolution; 0 of others."""
    operand, result = eqn.invars[0].aval, eqn.outvars[0].aval
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return math.prod(result.shape) * math.prod(operand.shape[axis] for axis in contracted)
    if eqn.primitive.name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        outputs = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return math.prod(result.shape) * math.prod(kernel) // max(outputs, 1)
    return 0
