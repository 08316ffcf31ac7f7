"""Finds branches under `jax.vmap`: all of them are computed for each element, and one result of them is taken."""

import math
from collections.abc import Iterator
from typing import Any

from partax._doctor.equations import bytes_of, inner_jaxprs
from partax._doctor.examined import Examined
from partax._doctor.finding import Figures, Finding, finding_at
from partax._doctor.flat_program import LITERAL, FlatProgram, flat_program
from partax._doctor.fusion import DECOMPOSITIONS, multiplications
from partax._doctor.lines import Line, comes_from, stack_of

# Elementwise work of branches, such as a reset of an environment, is fused; 1e8 multiplications take some milliseconds.
_MUCH_WORK = 1e8
_TURNS = 100  # of a while loop, which nobody knows


def find(examined: Examined) -> Iterator[Finding]:
    if not examined.equations.named("stop_gradient"):  # which `vmap` puts before what goes into a branch
        return
    for program in flat_program(examined).all:
        for line, branches in _selected(program).items():
            work, count = [sum(_work(program.eqns[i]) for i in branch) for branch in branches], len(branches)
            if sum(work) < _MUCH_WORK:
                continue
            share = round(max(work) / sum(work), 3)
            message = (
                f"`jax.vmap` computes all {count} branches for each element, about {sum(work):,.0f} multiplications, "
                "and takes one result of them."
            )
            advice = (
                "Decide once for all elements, outside of `jax.vmap`, or go through them by `jax.lax.map`, which "
                "computes one branch of each; where the branches differ in numbers alone, index these."
            )
            figures: Figures = {"branches": count, "multiplications": sum(work), "share": share}
            yield finding_at(line, "waste", "medium", figures, message, advice)


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


def _work(eqn: Any) -> float:
    """The multiplications of an operation that is not elementwise, or of a loop; about."""
    name = eqn.primitive.name
    if name in ("dot_general", "conv_general_dilated"):
        return multiplications(eqn)
    if name in DECOMPOSITIONS:
        return math.prod(eqn.invars[0].aval.shape) * eqn.invars[0].aval.shape[-1]
    turns = int(eqn.params["length"]) if name == "scan" else _TURNS if name == "while" else 1
    inner = sum(_work(it) for body in inner_jaxprs(eqn) for it in body.eqns)
    if turns > 1:
        inner += sum(bytes_of(it.outvars[0].aval) / 4 for body in inner_jaxprs(eqn) for it in body.eqns if it.outvars)
    return turns * inner
