"""Finds where the device waits for the host inside a program: calls of Python."""

from collections.abc import Iterator

from partax._doctor.figures import seconds_text
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.flat_program import LOOPS, Operation, every_operation
from partax._doctor.lines import Line, group_by, stack_of
from partax._doctor.program import Program

_CALLBACKS = {
    "pure_callback": "`jax.pure_callback`",
    "io_callback": "`io_callback`",
    "debug_callback": "`jax.debug.callback`",
    "debug_print": "`jax.debug.print`",
}
# Measured on the CPU with functions that do nothing. A scan of 1000 steps takes 12 us, and 150 ms with a callback.
_CALL_SECONDS = 150e-6
_HIGH_SECONDS = 10e-3  # of one run of the program: as much as a training step of a small model


def find(program: Program) -> Iterator[Finding]:
    calls = (call for call in every_operation(program) if call.name in _CALLBACKS and not _is_check(call))
    groups = group_by(calls, lambda call: (call.line, call.name))
    yield from (_finding(line, name, group) for (line, name), group in groups.items())


def _is_check(operation: Operation) -> bool:
    """Whether it is a library's check, such as `equinox.error_if`, which runs Python where it fails."""
    stack = stack_of(operation.eqn)
    return bool(stack) and not stack[-1].is_users and "cond" in operation.enclosing


def _finding(line: Line, name: str, operations: list[Operation]) -> Finding:
    enclosing = operations[0].enclosing
    is_conditional, in_while = "cond" in enclosing, "while" in enclosing  # whose number of turns is unknown
    times = sum(operation.call.program.times for operation in operations)
    seconds = times * _CALL_SECONDS
    is_quiet = name.startswith("debug") and times == 1 and not in_while
    severity: Severity = "low" if is_quiet or is_conditional else "high" if seconds >= _HIGH_SECONDS else "medium"
    often = ("at most " if is_conditional else "") + (f"{times:,} times" if times > 1 else "once")
    each = "step of a while loop" if in_while else "run of the program"
    message = f"{_CALLBACKS[name]} calls Python {often} in each {each}, about {seconds_text(seconds)}"
    return finding_at(line, "host", severity, message, _advice(operations[0]), times=times, call_seconds=seconds)


def _advice(operation: Operation) -> str:
    if not operation.name.startswith("debug"):
        return "write it with `jax.numpy`, so that the device need not wait for Python, or call it before or after"
    if operation.enclosing.isdisjoint(LOOPS):
        return "take it out when you have seen what it shows, or return the value and print it outside of the program"
    return "return what it needs as an output of the loop, which `jax.lax.scan` has for each step, and print it after"
