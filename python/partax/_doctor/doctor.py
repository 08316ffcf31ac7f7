"""doctor: what a program's first call will cost, why, and which line of the user's does it."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from partax._doctor.figures import bytes_of
from partax._doctor.finding import SEVERITIES, Diagnosis, Figures, Finding
from partax._doctor.flat_program import flat_program
from partax._doctor.liveness import peak_bytes
from partax._doctor.program import Program, trace_program
from partax._doctor.rules import checkpoint, constants, donation, host, memory, repeats, retraces

RULES = (repeats, constants, retraces, memory, checkpoint, donation, host)
_FEW_EQUATIONS = 2_000  # of a program whose peak is always a figure; a larger one is walked where memory is at stake


def doctor(
    function: Callable[..., Any], /, *args: Any, compile: bool = False, memory_limit: int | None = None,
    trace_profile: bool = False, **kwargs: Any,
) -> Diagnosis:  # fmt: skip
    """Find the lines that make a call slow to compile, retrace or need much memory, before it is compiled.

    Example:
      >>> table = jnp.zeros((1000, 1000))
      >>> [finding] = partax.doctor(lambda i: table[i], jnp.int32(0)).findings
      >>> finding.severity, finding.kind, finding.figures["bytes"]
      ('medium', 'constant', 4000000)

    The call is traced without running it or allocating its arrays.

    Args:
      function: The result of `filter_jit`, `jax.jit`, `equinox.filter_jit`, `nnx.jit` or `partax.nnx.jit`, or any
        function, which is examined as `filter_jit` would compile it.
      *args: The arguments of the call. A `jax.ShapeDtypeStruct` may replace an array.
      compile: Whether to compile the program too, for the figures of XLA. Default: False.
      memory_limit: The bytes that the program may need. Default: None, for the memory of the device or host.
      trace_profile: Whether to sample which lines the trace spends its time in. Default: False.
      **kwargs: The arguments of the call by name. A `functools.partial` has those that are named like an option.

    Returns:
      The `partax.reports.Diagnosis`. Its `findings` are empty for a healthy program.

    Raises:
      TypeError: `function` is not callable, or raises when it is traced: the cause is its own exception.

    See Also: The page "Troubleshoot".
    """
    if memory_limit is not None and (type(memory_limit) is not int or memory_limit < 0):
        raise TypeError(f"found memory_limit={memory_limit!r}, expected a number of bytes, as in 8 << 20, or None")
    program = trace_program(function, args, kwargs, trace_profile)
    program.memory_limit = memory_limit
    seconds: Figures = {}
    if compile:
        begin = time.perf_counter()
        lowered = program.traced.lower()
        middle = time.perf_counter()
        program.compiled = lowered.compile()
        seconds = {"lower_seconds": middle - begin, "compile_seconds": time.perf_counter() - middle}
    return diagnosis_of(program, seconds)


def diagnosis_of(program: Program, more_figures: Figures, more_findings: Iterable[Finding] = ()) -> Diagnosis:
    def rank(finding: Finding) -> tuple[int, float]:
        return SEVERITIES.index(finding.severity), -float(finding.figures.get("share", 0))

    findings = sorted([*(finding for rule in RULES for finding in rule.find(program)), *more_findings], key=rank)
    size = flat_program(program).size
    figures: Figures = {
        "equations": size,
        "argument_bytes": sum(leaf.bytes for leaf in program.arguments),
        "result_bytes": program.result_bytes,
        "constant_bytes": sum(map(bytes_of, program.jaxpr.consts)),
        "trace_seconds": program.trace_seconds,
    }
    if program.compiled is not None or size <= _FEW_EQUATIONS:
        figures["peak_bytes"] = peak_bytes(program)
    return Diagnosis(program.name, program.line.place, (*findings,), figures | more_figures, program.trace_profile)
