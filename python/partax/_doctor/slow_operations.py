"""Finds operations that are known to take a backend long, by the table of `slow_table`, and wide switches."""

from collections import Counter
from collections.abc import Iterator

from partax._doctor.examined import Examined
from partax._doctor.finding import Figures, Finding, Severity, finding_at
from partax._doctor.flat_program import flat_programs
from partax._doctor.lines import Line
from partax._doctor.slow_table import SLOW_OPERATIONS, SlowOperation
from partax._report.figure_text import seconds_text

# A branch of one operation on a scalar takes 23 ms: 32 take 0.7 s, 64 take 1.5 s, 256 take 6 s, 1024 take 102 s. One of
# two products of matrices takes 4 ms.
_FEWEST_BRANCHES = 48
_MANY_BRANCHES = 256
_BRANCH_SECONDS = 0.023
_BRANCHES_THREAD = "https://github.com/jax-ml/jax/issues/4453"


def find(examined: Examined) -> Iterator[Finding]:
    """Findings of the kinds `slow-op` and `switch`."""
    equations = examined.equations
    for row in SLOW_OPERATIONS:
        found = [i for i in equations.named(*row.primitives) if row.matches(equations.eqns[i])]
        if len(found) >= row.fewest:
            at_lines = ((line, len(indices)) for line, indices in equations.by_line(found).items())
            for line, count in _chains(examined, row) if row.is_chain else at_lines:
                if count >= row.fewest:
                    yield _finding(examined, row, line, count)
    for i in equations.named("cond"):
        branches = len(equations.eqns[i].params["branches"])
        if branches >= _FEWEST_BRANCHES:
            inside, seconds = len(equations.inside(i)), branches * _BRANCH_SECONDS
            yield finding_at(
                equations.line(i),
                "switch",
                "high" if branches >= _MANY_BRANCHES else "medium",
                {
                    "branches": branches, "equations": inside, "share": round(inside / len(equations), 3),
                    "compile_seconds": round(seconds, 2), "thread": _BRANCHES_THREAD,
                },
                f"a switch of {branches} branches with {inside} equations: each is compiled as a program of its own, "
                f"in up to {seconds_text(seconds)} together and more than that where they are many hundreds",
                "where the branches differ in numbers alone, put those in an array and index it: `table[i]`; under "
                "`jax.vmap` all branches are computed for each element",
            )  # fmt: skip


def _chains(examined: Examined, row: SlowOperation) -> Iterator[tuple[Line, int]]:
    """The longest chains of operations, each of which has the result of the one before as an operand.

    Of each the line that most of it comes from, and its length.
    """
    for program in flat_programs(examined).all:
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
    severity: Severity = "low" if not row.seconds_each else "high" if count >= row.many else "medium"
    figures: Figures = {"times": count, "thread": row.thread}
    message = f"{row.name}: {row.effect}"
    if row.seconds_each:
        seconds = count * row.seconds_each
        figures |= {"compile_seconds": round(seconds, 2), "share": round(count / len(examined.equations), 3)}
        message = f"{count} {row.name}, about {seconds_text(seconds)} of a CPU's compile time: {row.effect}"
    return finding_at(line, "slow-op", severity, figures, message, row.advice)
