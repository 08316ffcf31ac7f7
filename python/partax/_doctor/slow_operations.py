"""Finds what is known to take a backend long to compile, branches under `jax.vmap`, and loops over many scalars.

The seconds in the comments are of XLA's CPU compiler on two shared cores, with jax 0.10; of GPUs, the threads'.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp

from partax._doctor.equations import LOOPS, bytes_of, inner_jaxprs
from partax._doctor.examined import Examined
from partax._doctor.finding import Figures, Finding, finding_at
from partax._doctor.flat_program import DECOMPOSITIONS, LITERAL, FlatProgram, flat_program, multiplications
from partax._doctor.lines import Line, comes_from, stack_of
from partax._report.table import seconds_text

_JAX = "https://github.com/jax-ml/jax/issues/"


class SlowOperation(NamedTuple):
    name: str  # as a finding calls it
    primitives: frozenset[str]  # the names of those that may be it
    matches: Callable[[Any], bool]  # whether an equation of one of them is it
    is_chain: bool  # whether they count where each takes the result of one before; else they count by line
    fewest: int  # how many there must be
    many: int  # from how many it is of high severity
    seconds_each: float  # what one more costs the CPU's compiler; 0 where only GPUs are slow
    effect: str  # what that costs, for the message
    advice: str
    thread: str  # where it is shown


def _is_wide_transpose(eqn: Any) -> bool:
    window = [eqn.invars[1].aval.shape[i] for i in eqn.params["dimension_numbers"].rhs_spec[2:]]
    return math.prod(eqn.params["lhs_dilation"]) >= _DILATION and math.prod(window) >= _WINDOW


def _sorts_long_integers(eqn: Any) -> bool:
    keys = eqn.invars[: eqn.params["num_keys"]]
    return math.prod(keys[0].aval.shape) >= _SORTED and any(var.aval.dtype.name in ("int64", "uint64") for var in keys)


_SMALL_MATRIX = 256  # rows or columns; of larger ones a batch may need more memory than there is
# The thread's program has 32 x 32 kernels and stride 16, and took GPUs 30 to 250 s, of which they tried algorithms. On
# the CPU it compiles in 0.4 s, and runs in 120 ms; with 16 x 16 and stride 8 in 30 ms, with 8 x 8 and stride 4 in 3 ms.
_DILATION = 64
_WINDOW = 256
# The thread: 3.4 s to compile, and 5.3 s to sort 2**30, on a GPU; 0.04 s and 0.06 s with 32 bits. That is 5 ms for so
# many. The CPU compiles both in 0.05 s.
_SORTED = 1 << 20

SLOW_OPERATIONS: tuple[SlowOperation, ...] = (
    # The thread: 8 of them and a sum take a GPU 75 s, and 0.4 s without the sum. On the CPU 8 take 0.3 to 1.4 s, 25
    # take 2.1 to 3.0 s, 50 take 5.5 s, with the sum or without.
    SlowOperation(
        "scatters that add, one after the other",
        frozenset(f"scatter{sign}{name}" for sign in "-_" for name in ("add", "mul", "min", "max")),
        lambda _: True, True, 8, 50, 0.1,
        "8 of them before a sum have taken GPUs 75 s to compile",
        "write all places at once: gather the indices and the values in arrays, and call `x.at[indices].add(values)` "
        "one time, or use `jax.lax.scan`", _JAX + "39483",
    ),
    # 50 single places take 0.6 to 0.8 s, 100 1.1 s, 400 2 to 3.2 s; 50 times three rows 1.7 s, 100 times 3.3 s.
    SlowOperation(
        "updates of one array, one after the other", frozenset({"scatter", "dynamic_update_slice"}),
        lambda _: True, True, 64, 400, 0.012,
        "the compiler takes longer for each, and longer for all where they are many",
        "write all places at once: `x.at[indices].set(values)`, `jnp.stack` of a list, or `jax.lax.scan` where each "
        "depends on the one before", _JAX + "2242",
    ),
    # 100 take 0.2 to 0.4 s, 200 take 0.4 to 1.1 s, 400 take 0.9 to 3.8 s, 800 take 2.8 to 13.6 s. The thread:
    # `jnp.select` is such a chain.
    SlowOperation(
        "selects, each of the result of the one before", frozenset({"select_n"}),
        lambda _: True, True, 200, 800, 0.005,
        "the time grows with the square of their number",
        "look it up instead: `table[index]`, `jnp.select` with few conditions, `jnp.searchsorted`, or `jax.lax.switch`",
        _JAX + "20854",
    ),
    # Of 4 x 4, 10 take 0.3 to 0.5 s; 50 take 1.1 s (LU, QR, eigh, SVD), 1.4 s (Cholesky), 2.3 s (triangular solves);
    # 100 take 1.8 to 3.4 s. 50 `tanh` take 0.2 s.
    SlowOperation(
        "decompositions and solves of small matrices at one line", DECOMPOSITIONS,
        lambda eqn: max(eqn.invars[0].aval.shape[-2:]) <= _SMALL_MATRIX, False, 40, 400, 0.027,
        "each is a call of a library with its own copies and checks",
        "stack the matrices and decompose them in one call: `jnp.linalg` takes batches, and `jax.vmap` makes them",
        _JAX + "20326",
    ),
    SlowOperation(
        "transposed convolution with a large kernel and stride", frozenset({"conv_general_dilated"}),
        _is_wide_transpose, False, 1, 1 << 30, 0.0,
        "most of its multiplications are with zeros that the stride puts in, and GPUs have taken minutes to choose an "
        "algorithm",
        "compute all outputs of one input place together: a convolution or a matrix product with stride x stride x "
        "channels outputs, then `reshape` and `transpose`", _JAX + "17464",
    ),
    SlowOperation(
        "sort of 64-bit integers", frozenset({"sort"}),
        _sorts_long_integers, False, 1, 1 << 30, 0.0,
        "GPUs have no library sort for them: one of 2**30 took 3.4 s to compile and 5.3 s to run, with 32 bits 0.04 s "
        "and 0.06 s",
        "sort 32-bit integers where the values fit: `keys.astype(jnp.int32)`", _JAX + "34912",
    ),
)  # fmt: skip


# A branch of one operation on a scalar takes 23 ms: 32 take 0.7 s, 64 take 1.5 s, 256 take 6 s, 1024 take 102 s. One of
# two products of matrices takes 4 ms.
_FEWEST_BRANCHES = 48
_MANY_BRANCHES = 256
_BRANCH_SECONDS = 0.023


def find(examined: Examined) -> Iterator[Finding]:
    equations = examined.equations
    for row in SLOW_OPERATIONS:
        found = [i for i in equations.named(*row.primitives) if row.matches(equations.eqns[i])]
        if len(found) < row.fewest:
            continue
        at_lines = ((line, len(indices)) for line, indices in equations.by_line(found).items())
        for line, count in _chains(examined, row) if row.is_chain else at_lines:
            if count >= row.fewest:
                yield _finding(examined, row, line, count)
    for i in equations.named("cond"):
        branches = len(equations.eqns[i].params["branches"])
        if branches >= _FEWEST_BRANCHES:
            inside, seconds = len(equations.inside(i)), branches * _BRANCH_SECONDS
            share = round(inside / len(equations), 3)
            figures = {"branches": branches, "equations": inside, "share": share, "compile_seconds": round(seconds, 2)}
            message = f"a switch of {branches} branches with {inside} equations: each is compiled as a program of its "
            message += f"own, in up to {seconds_text(seconds)} together and more than that where they are many hundreds"
            advice = "where the branches differ in numbers alone, put those in an array and index it: `table[i]`; "
            advice += "under `jax.vmap` all branches are computed for each element"
            severity = "high" if branches >= _MANY_BRANCHES else "medium"
            yield finding_at(equations.line(i), "switch", severity, message, advice, **figures, thread=f"{_JAX}4453")


def _chains(examined: Examined, row: SlowOperation) -> Iterator[tuple[Line, int]]:
    """The longest chains of operations on one another: the line that most come from, and the length."""
    for program in flat_program(examined).all:
        chains: dict[int, list[int]] = {}  # by the number of the result
        for i, eqn in enumerate(program.eqns):
            if eqn.primitive.name not in row.primitives:
                continue
            # The array that it updates, or the cases that it selects.
            operands = program.reads[i][1:] if eqn.primitive.name == "select_n" else program.reads[i][:1]
            before = [chains[it] for it in operands if it in chains and chains[it][-1] == program.makers[it]]
            chain = max(before, key=len, default=[])
            chain.append(i)
            chains[program.writes[i][0]] = chain
        for chain in {id(it): it for it in chains.values() if len(it) >= row.fewest}.values():
            yield Counter(map(program.line, chain)).most_common(1)[0][0], len(chain)


def _finding(examined: Examined, row: SlowOperation, line: Line, count: int) -> Finding:
    figures: Figures = {"times": count, "thread": row.thread}
    if not row.seconds_each:
        return finding_at(line, "slow-op", "low", f"{row.name}: {row.effect}", row.advice, **figures)
    seconds = count * row.seconds_each
    figures |= {"compile_seconds": round(seconds, 2), "share": round(count / len(examined.equations), 3)}
    message = f"{count} {row.name}, about {seconds_text(seconds)} of a CPU's compile time: {row.effect}"
    return finding_at(line, "slow-op", "high" if count >= row.many else "medium", message, row.advice, **figures)


# Elementwise work of branches, such as a reset of an environment, is fused; 1e8 multiplications take some milliseconds.
_MUCH_WORK = 1e8
_TURNS = 100  # of a while loop, which nobody knows


def find_selected(examined: Examined) -> Iterator[Finding]:
    if not examined.equations.named("stop_gradient"):  # which `vmap` puts before what goes into a branch
        return
    for program in flat_program(examined).all:
        for line, branches in _selected(program).items():
            work, count = [sum(work_of(program.eqns[i]) for i in branch) for branch in branches], len(branches)
            if sum(work) < _MUCH_WORK:
                continue
            message = f"`jax.vmap` computes all {count} branches for each element, about {sum(work):,.0f} "
            message += "multiplications, and takes one result of them."
            advice = "Decide once for all elements, outside of `jax.vmap`, or go through them by `jax.lax.map`, which "
            advice += "computes one branch of each; where the branches differ in numbers alone, index these."
            figures = {"branches": count, "multiplications": sum(work), "share": round(max(work) / sum(work), 3)}
            yield finding_at(line, "waste", "medium", message, advice, **figures)


def _selected(program: FlatProgram) -> dict[Line, list[set[int]]]:
    """For the user's line of each `cond` that `vmap` has made selects of, the equations of each branch."""
    makers = program.makers
    selects: set[int] = set()
    begins: dict[Line, int] = {}
    found: dict[Line, list[set[int]]] = {}
    for i, eqn in enumerate(program.eqns):
        if eqn.primitive.name != "select_n" or not comes_from(eqn, "control_flow/conditionals.py", "cond", "switch"):
            continue
        stack = stack_of(eqn)
        if not stack or not stack[-1].is_users:
            continue
        selects.add(i)
        begin = begins.setdefault(stack[-1], i)
        cases = program.reads[i][1:]
        if any(program.eqns[makers[it]].primitive.name == "stop_gradient" for it in cases if it in makers):
            continue  # what goes into a branch
        branches = found.setdefault(stack[-1], [set() for _ in cases])
        for branch, number in zip(branches, cases, strict=False):
            left = [number]
            while left:
                at = makers.get(left.pop(), LITERAL)
                if at >= begin and at not in branch and at not in selects:
                    branch.add(at)
                    left += program.reads[at]
    return found


def work_of(eqn: Any) -> float:
    """The multiplications of an operation that is not elementwise, or of a loop; about."""
    name = eqn.primitive.name
    if name in ("dot_general", "conv_general_dilated"):
        return multiplications(eqn)
    if name in DECOMPOSITIONS:
        return math.prod(eqn.invars[0].aval.shape) * eqn.invars[0].aval.shape[-1]
    turns = int(eqn.params["length"]) if name == "scan" else _TURNS if name == "while" else 1
    inner = sum(work_of(it) for body in inner_jaxprs(eqn) for it in body.eqns)
    if turns > 1:
        inner += sum(bytes_of(it.outvars[0].aval) / 4 for body in inner_jaxprs(eqn) for it in body.eqns if it.outvars)
    return turns * inner


_MUCH_OF_A_TURN = 1e6  # multiplications of all elements: less is hidden by what a turn takes anyway


def find_uneven(examined: Examined) -> Iterator[Finding]:
    """While loops of the user's under `jax.vmap`, which have a condition for each element."""
    equations = examined.equations
    for i in equations.named("while"):
        eqn, stack = equations.eqns[i], stack_of(equations.eqns[i])
        elements = math.prod(eqn.params["cond_jaxpr"].out_avals[0].shape)
        if elements > 1 and stack and stack[-1].is_users:
            work = sum(work_of(it) for it in eqn.params["body_jaxpr"].jaxpr.eqns)
            severity = "low" if work >= _MUCH_OF_A_TURN else "info"
            message = f"`jax.vmap` runs this while loop for all {elements:,} elements until the last is done: turns of "
            message += f"those done before, about {work:,.0f} multiplications in each, are computed and thrown away."
            advice = "Where some take many more turns than others, go through them by `jax.lax.map(..., "
            advice += "batch_size=...)`, those of like numbers of turns together, or put a new one where one is done."
            yield finding_at(stack[-1], "waste", severity, message, advice, elements=elements, multiplications=work)


# 60 scalars in a scan and its gradient take 30 to 300 times as long as one vector of them; a solver of differential
# equations has about ten for itself.
_FEWEST_SCALARS = 32
_FEWEST_EQUATIONS = 128
_FEWEST_TURNS = 8


def find_scalars(examined: Examined) -> Iterator[Finding]:
    equations = examined.equations
    told: set[Line] = set()
    for index in sorted(equations.named(*LOOPS)):
        eqn, line, bodies = equations.eqns[index], equations.line(index), list(inner_jaxprs(equations.eqns[index]))
        turns = int(eqn.params.get("length", _FEWEST_TURNS))
        scalars = max(sum(map(_is_scalar, ends)) for it in bodies for ends in (it.invars, it.outvars))
        count = sum(_is_scalar(var) for body in bodies for it in body.eqns for var in it.outvars)
        is_little = scalars < _FEWEST_SCALARS or turns < _FEWEST_TURNS or count < _FEWEST_EQUATIONS
        if is_little or line in told:  # the gradient's loop is of the same line
            continue
        told.add(line)
        often = f"each of its {turns:,} turns" if "length" in eqn.params else "each turn"
        message = f"this {LOOPS[eqn.primitive.name]} goes along with {scalars} scalars, and computes {count} scalars "
        message += f"in {often}: the device runs operation after operation, each of which does next to nothing."
        advice = "Stack them: one vector for all scalars of a kind, and one equation for it; unstack by index or by "
        advice += "name outside of the loop."
        figures: Figures = {"scalars": scalars, "equations": count, "times": turns, "thread": f"{_JAX}40150"}
        yield finding_at(line, "scalar", "medium", message, advice, **figures)


def _is_scalar(var: Any) -> bool:
    aval = var.aval
    return getattr(aval, "shape", None) == () and jnp.issubdtype(aval.dtype, jnp.inexact)
