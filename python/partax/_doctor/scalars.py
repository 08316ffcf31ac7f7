"""Finds loops that compute with many scalars, each by equations of its own, where one vector would do."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp

from partax._doctor.equations import LOOPS, inner_jaxprs
from partax._doctor.examined import Examined
from partax._doctor.finding import Figures, Finding, finding_at
from partax._doctor.lines import Line

# 60 scalars in a scan and its gradient take 30 to 300 times as long as one vector of them; a solver of differential
# equations has about ten for itself.
_FEWEST_SCALARS = 32
_FEWEST_EQUATIONS = 128
_FEWEST_TURNS = 8
_THREAD = "https://github.com/jax-ml/jax/issues/40150"


def find(examined: Examined) -> Iterator[Finding]:
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
        message = (
            f"this {LOOPS[eqn.primitive.name]} goes along with {scalars} scalars, and computes {count} scalars in "
            f"{often}: the device runs operation after operation, each of which does next to nothing."
        )
        advice = "Stack them: one vector for all scalars of a kind, and one equation for it; unstack by index or by "
        advice += "name outside of the loop."
        figures: Figures = {"scalars": scalars, "equations": count, "times": turns, "thread": _THREAD}
        yield finding_at(line, "scalar", "medium", figures, message, advice)


def _is_scalar(var: Any) -> bool:
    aval = var.aval
    return getattr(aval, "shape", None) == () and jnp.issubdtype(aval.dtype, jnp.inexact)
