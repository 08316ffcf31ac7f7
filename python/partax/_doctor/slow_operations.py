"""Finds operations that are known to take a backend long, by the table of `slow_table`, and wide switches."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from partax._doctor.equations import Equations
from partax._doctor.examined import Examined
from partax._doctor.figure_text import seconds_text
from partax._doctor.finding import Figures, Finding, Severity, finding_at
from partax._doctor.inner_programs import bind_known, by_line, calls_of, not_compiled, through_calls, user_line
from partax._doctor.slow_table import SLOW_OPERATIONS, SlowOperation

# A branch of one operation on a scalar takes 23 ms: 32 take 0.7 s, 64 take 1.5 s, 256 take 6 s, 1024 take 102 s. One of
# two products of matrices takes 4 ms.
_FEWEST_BRANCHES = 48
_MANY_BRANCHES = 256
_BRANCH_SECONDS = 0.023
_BRANCHES_THREAD = "https://github.com/jax-ml/jax/issues/4453"


@dataclasses.dataclass(slots=True)
class _Link:
    """One operation of a chain."""

    index: int
    length: int  # of the chain up to here
    before: "_Link | None"


def find(examined: Examined) -> Iterator[Finding]:
    """Findings of the kinds `slow-op` and `switch`."""
    equations = examined.equations
    for row in SLOW_OPERATIONS:
        named = equations.named(*row.primitives)
        found = [i for i in named if row.matches(equations.eqns[i])] if len(named) >= row.fewest else []
        if len(found) >= row.fewest:
            yield from _found(examined, row, found)
    for i in equations.named("cond"):
        if len(equations.eqns[i].params["branches"]) >= _FEWEST_BRANCHES:
            yield _switch(examined, i)


def _found(examined: Examined, row: SlowOperation, found: list[int]) -> Iterator[Finding]:
    if row.is_chain:
        for chain in _chains(examined.equations, row, found):
            yield _finding(examined, row, chain)
        return
    skipped = not_compiled(examined.equations)
    compiled = [i for i in found if i not in skipped]
    for at_line in by_line(examined.equations, compiled).values():
        if len(at_line) >= row.fewest:
            yield _finding(examined, row, at_line)


def _chains(equations: Equations, row: SlowOperation, found: list[int]) -> Iterator[list[int]]:
    """The longest chains, each of operations of which each has the result of the one before as an operand."""
    links: dict[Any, _Link] = {}  # by the variable that is the result
    ends: dict[int, _Link] = {}
    bind = functools.partial(bind_known, links)
    for i, eqn, programs in through_calls(equations, sorted(calls_of(equations).union(found)), bind):
        if programs:
            continue
        before = _before(links, eqn)
        link = links[eqn.outvars[0]] = _Link(i, 1 if before is None else before.length + 1, before)
        if before is not None:
            ends.pop(before.index, None)
        ends[i] = link
    told: set[int] = set()
    for link in sorted(ends.values(), key=lambda it: -it.length):
        chain: list[int] = []
        at: _Link | None = link
        while at is not None and at.index not in told:
            chain.append(at.index)
            at = at.before
        told.update(chain)
        if len(chain) >= row.fewest:
            yield chain[::-1]


def _before(links: dict[Any, _Link], eqn: Any) -> _Link | None:
    """The longest chain that an equation goes on: of the array that it updates, or of a case that it selects."""
    operands = eqn.invars[1:] if eqn.primitive.name == "select_n" else eqn.invars[:1]
    known = [links[var] for var in operands if not hasattr(var, "val") and var in links]
    return max(known, key=lambda it: it.length, default=None)


def _finding(examined: Examined, row: SlowOperation, found: list[int]) -> Finding:
    lines = Counter(user_line(examined.equations, i) for i in found)
    line = lines.most_common(1)[0][0]
    count = len(found)
    severity: Severity = "low" if not row.seconds_each else "high" if count >= row.many else "medium"
    figures: Figures = {"times": count, "thread": row.thread}
    message = f"{row.name}: {row.effect}"
    if row.seconds_each:
        seconds = count * row.seconds_each
        figures |= {"compile_seconds": round(seconds, 2), "share": round(count / len(examined.equations), 3)}
        message = f"{count} {row.name}, about {seconds_text(seconds)} of a CPU's compile time: {row.effect}"
    return finding_at(line, "slow-op", severity, figures, message, row.advice)


def _switch(examined: Examined, index: int) -> Finding:
    equations = examined.equations
    eqn = equations.eqns[index]
    line = user_line(equations, index)
    branches, inside = len(eqn.params["branches"]), len(equations.inside(index))
    seconds = branches * _BRANCH_SECONDS
    figures: Figures = {
        "branches": branches,
        "equations": inside,
        "share": round(inside / len(equations), 3),
        "compile_seconds": round(seconds, 2),
        "thread": _BRANCHES_THREAD,
    }
    severity: Severity = "high" if branches >= _MANY_BRANCHES else "medium"
    message = (
        f"a switch of {branches} branches with {inside} equations: each is compiled as a program of its own, in up to "
        f"{seconds_text(seconds)} together and more than that where they are many hundreds"
    )
    advice = (
        "where the branches differ in numbers alone, put those in an array and index it: `table[i]`; under `jax.vmap` "
        "all branches are computed for each element"
    )
    return finding_at(line, "switch", severity, figures, message, advice)
