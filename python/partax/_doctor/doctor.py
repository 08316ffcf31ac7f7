"""doctor: what a program's first call will cost, why, and which line of the user's does it."""

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

from partax._doctor import (
    arguments,
    constants,
    control_flow,
    dispatch,
    host,
    memory,
    precision,
    repeats,
    retraces,
    slow_operations,
    waste,
)
from partax._doctor.diagnosis import Diagnosis
from partax._doctor.equations import bytes_of
from partax._doctor.examined import Examined, examine
from partax._doctor.finding import Figures, Finding, worst_first
from partax._doctor.liveness import peak_bytes
from partax._report.table import Progress, progress

# What each looks for, and the finder, which reads the program once.
_FINDERS: dict[str, Callable[[Examined], Iterable[Finding]]] = {
    "repeats": repeats.find, "constants": constants.find, "retraces": retraces.find, "memory": memory.find_too_much,
    "residuals": memory.find_residuals, "donation": arguments.find_not_donated, "unused": arguments.find_unused,
    "precision": precision.find, "host": host.find, "slow operations": slow_operations.find,
    "scalars": control_flow.find_scalars, "dispatch": dispatch.find_flattening,
    "short steps": dispatch.find_short_steps, "waste": waste.find, "branches": control_flow.find_selected,
    "uneven loops": control_flow.find_uneven,
}  # fmt: skip

_FEW_EQUATIONS = 2_000  # of a program whose peak is always told; a larger one is walked where its memory is at stake


def doctor(
    function: Callable[..., Any],
    /,
    *args: Any,
    compile: bool = False,
    measure: bool = False,
    memory_limit: int | None = None,
    **kwargs: Any,
) -> Diagnosis:
    """Reads the program of a call before it is compiled, and says why it costs what it costs, by line.

    Example:
      >>> table = jnp.zeros((1000, 1000))
      >>> diagnosis = partax.doctor(lambda i: table[i], jnp.int32(0))
      >>> for finding in diagnosis.findings:
      ...     print(finding.severity, finding.kind, finding.figures["bytes"])
      medium constant 4000000

    Nothing is run, and no array is allocated, unless `measure` is set. On a terminal with rich installed, its stages
    are shown once they have taken a second.

    Args:
      function: what `filter_jit`, `jax.jit`, `equinox.filter_jit`, `nnx.jit` or `partax.nnx.jit` returned, or any
        function, which is examined as `filter_jit` would compile it.
      *args: the arguments of the call; a `jax.ShapeDtypeStruct` may stand for any array.
      compile: whether the program is compiled too, which gives XLA's own figures.
      measure: whether advice is tried, with the seconds in the finding's figures: of repeated code a smaller part is
        compiled, in a loop and not; a small step is run on zeros, by itself and as one of 32 in a call.
      memory_limit: how many bytes the program may take; those of the device by default.
      **kwargs: the arguments of the call by name. One that is called as an option here is passed with a
        `functools.partial`.

    Returns:
      The `Diagnosis`: its `findings` are empty for a healthy program.

    Raises:
      TypeError: `function` is none, or raises when it is traced; the cause is its own exception. Or `memory_limit` is
        no number of bytes.
    """
    if memory_limit is not None and (type(memory_limit) is not int or memory_limit < 0):
        raise TypeError(f"found memory_limit={memory_limit!r}, expected a number of bytes, as in 8 << 20, or None")
    stages = len(_FINDERS) + (4 if compile else 2)  # tracing, lowering and compiling, the figures
    with progress("tracing", stages) as work:
        examined = examine(function, args, kwargs)
        examined.memory_limit = memory_limit
        examined.measure = measure
        seconds: Figures = {}
        if compile:
            work.begin("lowering")
            begin = time.perf_counter()
            lowered = examined.traced.lower()
            seconds["lower_seconds"] = time.perf_counter() - begin
            work.begin("compiling")
            begin = time.perf_counter()
            examined.compiled = lowered.compile()
            seconds["compile_seconds"] = time.perf_counter() - begin
        found = diagnosis_of(examined, work)
        return dataclasses.replace(found, figures=found.figures | seconds)


def diagnosis_of(examined: Examined, work: Progress | None = None) -> Diagnosis:
    """What all finders find in a program; `work` is told of each."""
    findings: list[Finding] = []
    work = work or Progress("", 0)
    for name, find in _FINDERS.items():
        work.begin(f"looking at {name}")
        findings += find(examined)
    work.begin("figures")
    return Diagnosis(examined.name, examined.defined, worst_first(findings), _figures(examined), examined)


def _figures(examined: Examined) -> Figures:
    figures: Figures = {
        "equations": len(examined.equations),
        "argument_bytes": sum(leaf.bytes for leaf in examined.arguments),
        "result_bytes": sum(leaf.bytes for leaf in examined.results),
        "constant_bytes": sum(map(bytes_of, examined.jaxpr.consts)),
        "trace_seconds": examined.trace_seconds,
    }
    if examined.compiled is not None or len(examined.equations) <= _FEW_EQUATIONS:
        figures["peak_bytes"] = peak_bytes(examined)
    return figures
