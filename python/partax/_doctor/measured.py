"""Measures what a loop costs the compiler: some turns of it, compiled one after the other and as one scanned body."""

import timeit
from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal, Var, jaxpr_as_fun

from partax._doctor.equations import Equations
from partax._doctor.finding import Figures

_FEW, _MORE = 2, 8  # turns that are compiled; the difference is the price of six


def measured_seconds(equations: Equations, starts: Sequence[int], length: int) -> Figures:
    """Compiles a few turns of a loop, of so many equations from each start on, and one turn as the body of a scan.

    Returns:
      `measured_turns`, `turn_seconds` (what each further turn adds), `loop_seconds` (of all turns, by these) and
      `scan_seconds` (of a scan over all turns); nothing where a turn cannot be compiled by itself.
    """
    turns = [[equations.eqns[i] for i in equations.outermost(start, length)] for start in starts]
    measured = min(_MORE, len(turns))
    try:
        _compile_seconds(_program(turns[:_FEW]))  # the first in a process sets the compiler up
        few, more = (_compile_seconds(_program(turns[:count])) for count in (_FEW, measured))
        scanned = _compile_seconds(_scan(turns))
    except Exception:  # what only its own program can have: a mesh axis, a token, an effect
        return {}
    each = max(more - few, 0.0) / (measured - _FEW)
    return {
        "measured_turns": measured,
        "turn_seconds": round(each, 4),
        "loop_seconds": round(few + each * (len(turns) - _FEW), 3),
        "scan_seconds": round(scanned, 3),
    }


def _inputs(eqns: list[Any]) -> list[Any]:
    """The variables that equations read and none of them makes, in order."""
    made = {var for eqn in eqns for var in eqn.outvars}
    read = (var for eqn in eqns for var in eqn.invars if not isinstance(var, Literal) and var not in made)
    return list(dict.fromkeys(read))


def _closed(eqns: list[Any], results: list[Any]) -> Any:
    """A program of these equations; what jax knows of its arguments' names is that of an empty one."""
    inputs = _inputs(eqns)
    empty = jax.make_jaxpr(lambda *values: None)(*[jax.ShapeDtypeStruct((), "float32")] * len(inputs)).jaxpr
    return ClosedJaxpr(empty.replace(invars=inputs, outvars=results, eqns=eqns, effects=empty.effects), ())


def _program(turns: list[list[Any]]) -> Any:
    """The program of some turns one after the other; its results are those of the last equation."""
    eqns = [eqn for turn in turns for eqn in turn]
    return _closed(eqns, [var for var in eqns[-1].outvars if type(var) is Var])


def _scan(turns: list[list[Any]]) -> Any:
    """A scan of one turn: what the next turn reads of it is the carry, all else stays as it is."""
    inputs, inputs_of_next = _inputs(turns[0]), _inputs(turns[1])
    made = {var for eqn in turns[0] for var in eqn.outvars if type(var) is Var}
    pairs = enumerate(zip(inputs, inputs_of_next, strict=False))
    carried = {i: after for i, (before, after) in pairs if after in made and before.aval == after.aval}
    body = jaxpr_as_fun(_closed(turns[0], list(carried.values())))

    def scanned(*values: Any) -> Any:
        def turn(carry: Any, _: Any) -> Any:
            now = dict(enumerate(values)) | dict(zip(carried, carry, strict=True))
            return body(*now.values()), None

        return jax.lax.scan(turn, [values[i] for i in carried], None, length=len(turns))[0]

    return jax.make_jaxpr(scanned)(*[jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in inputs])


def _compile_seconds(program: Any) -> float:
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in program.in_avals]
    return timeit.timeit(jax.jit(jaxpr_as_fun(program)).lower(*structs).compile, number=1)
