"""Where an equation's inner programs have their inputs from, and which line of the user's an equation is for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jax.extend.core import Literal

from partax._doctor.equations import Equations, held_programs, scan_parts
from partax._doctor.fusion import INLINED
from partax._doctor.lines import Line, nearest_line


class InnerProgram(NamedTuple):
    """A program inside of an equation.

    Attributes:
      jaxpr: without its constants.
      constants: what it has captured itself, for its constant variables in order.
      given: for each input the operand that it is; None for what changes from step to step of a loop.
    """

    jaxpr: Any
    constants: Sequence[Any]
    given: Sequence[Any]


# Whose inner program combines two elements.
_COMBINING = ("scatter", "reduce", "select_and_", "arg")


def calls_of(equations: Equations) -> set[int]:
    """The indices of the equations that have inner programs, which work on whole operands."""
    return {i for i in set(equations.parents) if i >= 0 and not equations.names[i].startswith(_COMBINING)}


def inner_programs(eqn: Any) -> Iterator[InnerProgram]:
    """The inner programs of an equation, in the order of its parameters."""
    for name, holder, jaxpr in held_programs(eqn):
        yield InnerProgram(jaxpr, getattr(holder, "consts", ()), _given(eqn, name, len(jaxpr.invars)))


def _given(eqn: Any, parameter: str, count: int) -> list[Any]:
    kind, operands = eqn.primitive.name, list(eqn.invars)
    if kind == "scan":
        kept = scan_parts(eqn).consts
        operands[kept:] = [None] * (len(operands) - kept)
    elif kind == "while":
        first, second = int(eqn.params["cond_nconsts"]), int(eqn.params["body_nconsts"])
        kept = operands[:first] if parameter == "cond_jaxpr" else operands[first : first + second]
        operands = kept + [None] * (count - len(kept))
    elif kind == "cond":
        operands = operands[1:]
    return operands if len(operands) == count else [None] * count


def through_calls(
    equations: Equations, indices: Iterable[int], bind: Callable[[Sequence[Any], Sequence[Any]], None]
) -> Iterator[tuple[int, Any, Sequence[InnerProgram]]]:
    """Equations in order, while `bind` is told which values go into the programs inside of them and come back.

    Args:
      equations: of the program.
      indices: of those to read, in order, with all of `calls_of`.
      bind: takes variables, and what each of them is given: a variable, a literal, or None where that is not known.

    Yields:
      An index, its equation, and the programs inside of it, which are bound next; none of what is no call.
    """
    callers = calls_of(equations)
    calls: list[tuple[int, Any, Any]] = []  # that are being read: depth, equation, inner program
    for i in indices:
        eqn, depth = equations.eqns[i], equations.depths[i]
        while calls and calls[-1][0] >= depth:
            _, call, jaxpr = calls.pop()
            bind(call.outvars, jaxpr.outvars)
        if i not in callers:
            yield i, eqn, ()
            continue
        programs = list(inner_programs(eqn))
        yield i, eqn, programs
        for program in programs:
            bind(program.jaxpr.invars, program.given)
        if eqn.primitive.name in INLINED and len(programs) == 1:
            calls.append((depth, eqn, programs[0].jaxpr))
        else:
            bind(eqn.outvars, [None] * len(eqn.outvars))


def bind_known(known: dict[Any, Any], variables: Sequence[Any], given: Sequence[Any]) -> None:
    """Makes a table tell of variables what it tells of what they are given."""
    for var, it in zip(variables, given, strict=True):
        what = None if it is None or type(it) is Literal else known.get(it)
        if what is None:
            known.pop(var, None)
        else:
            known[var] = what


def around(equations: Equations, index: int) -> Iterator[int]:
    """The equations that an equation is inside of, the innermost first."""
    while (index := equations.parents[index]) >= 0:
        yield index


def not_compiled(equations: Equations) -> set[int]:
    """The indices of what only the derivatives of linear solves need: of each, the solve alone is compiled."""
    solves = equations.named("custom_linear_solve")
    is_left_out: dict[int, Iterator[bool]] = {}  # of each solve, for what stands directly in it
    for i in solves:
        solve = getattr(equations.eqns[i].params.get("jaxprs"), "solve", None)
        held = held_programs(equations.eqns[i])
        is_left_out[i] = iter([solve is not None and item is not solve for _, item, jaxpr in held for _ in jaxpr.eqns])
    found: set[int] = set()
    for at in range(solves[0], len(equations)) if solves else ():
        parent = equations.parents[at]
        if parent in found or (parent in is_left_out and next(is_left_out[parent])):
            found.add(at)
    return found


def user_line(equations: Equations, index: int) -> Line:
    """The user's line of an equation; of what calls it where it has none, as inside of jax's own functions."""
    return nearest_line(equations.eqns[at] for at in (index, *around(equations, index)))


def by_line(equations: Equations, indices: Iterable[int]) -> dict[Line, list[int]]:
    """The indices of equations by the user's line, in order."""
    lines: dict[Line, list[int]] = {}
    for i in indices:
        lines.setdefault(user_line(equations, i), []).append(i)
    return lines
