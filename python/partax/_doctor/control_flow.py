"""Finds branches under `jax.vmap`, all of which are computed for each element, and loops over many scalars."""

import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp

from partax._doctor.equations import LOOPS, bytes_of, inner_jaxprs
from partax._doctor.examined import Examined
from partax._doctor.finding import Figures, Finding, finding_at
from partax._doctor.flat_program import DECOMPOSITIONS, LITERAL, FlatProgram, flat_program, multiplications
from partax._doctor.lines import Line, comes_from, stack_of

# Elementwise work of branches, such as a reset of an environment, is fused; 1e8 multiplications take some milliseconds.
_MUCH_WORK = 1e8
_TURNS = 100  # of a while loop, which nobody knows


def find_selected(examined: Examined) -> Iterator[Finding]:
    if not examined.equations.named("stop_gradient"):  # which `vmap` puts before what goes into a branch
        return
    for program in flat_program(examined).all:
        for line, branches in _selected(program).items():
            work, count = [sum(_work(program.eqns[i]) for i in branch) for branch in branches], len(branches)
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


_MUCH_OF_A_TURN = 1e6  # multiplications of all elements: less is hidden by what a turn takes anyway


def find_uneven(examined: Examined) -> Iterator[Finding]:
    """While loops of the user's under `jax.vmap`, which have a condition for each element."""
    equations = examined.equations
    for i in equations.named("while"):
        eqn, stack = equations.eqns[i], stack_of(equations.eqns[i])
        elements = math.prod(eqn.params["cond_jaxpr"].out_avals[0].shape)
        if elements > 1 and stack and stack[-1].is_users:
            work = sum(_work(it) for it in eqn.params["body_jaxpr"].jaxpr.eqns)
            severity = "low" if work >= _MUCH_OF_A_TURN else "info"
            message = f"`jax.vmap` runs this while loop for all {elements:,} elements until the last is done: turns of "
            message += f"those done before, about {work:,.0f} multiplications in each, are computed and thrown away."
            advice = "Where some take many more turns than others, go through them by `jax.lax.map(..., "
            advice += "batch_size=...)`, those of like numbers of turns together, or put a new one where one is done."
            figures: Figures = {"elements": elements, "multiplications": work}
            yield finding_at(stack[-1], "waste", severity, message, advice, **figures)


# 60 scalars in a scan and its gradient take 30 to 300 times as long as one vector of them; a solver of differential
# equations has about ten for itself.
_FEWEST_SCALARS = 32
_FEWEST_EQUATIONS = 128
_FEWEST_TURNS = 8
_THREAD = "https://github.com/jax-ml/jax/issues/40150"


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
        figures: Figures = {"scalars": scalars, "equations": count, "times": turns, "thread": _THREAD}
        yield finding_at(line, "scalar", "medium", message, advice, **figures)


def _is_scalar(var: Any) -> bool:
    aval = var.aval
    return getattr(aval, "shape", None) == () and jnp.issubdtype(aval.dtype, jnp.inexact)
