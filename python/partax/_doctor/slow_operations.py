"""Finds operations that are known to take a backend long to compile, each with the thread that shows it.

The seconds in the comments are of XLA's CPU compiler on two shared cores, with jax 0.10; of GPUs, the threads'.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from partax._doctor.examined import Examined
from partax._doctor.finding import Figures, Finding, finding_at
from partax._doctor.flat_program import DECOMPOSITIONS, flat_program
from partax._doctor.lines import Line
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
