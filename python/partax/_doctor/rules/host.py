"""Finds where the device waits for the host inside a program: calls of Python."""

from collections.abc import Iterator

from partax._doctor.figures import seconds_text
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.flat_program import LOOPS, Place, places_of
from partax._doctor.lines import Line, group_by, stack_of
from partax._doctor.program import Program

# How a finding calls what runs Python.
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
    calls = (place for place in places_of(program, *_CALLBACKS) if not _is_check(place))
    groups = group_by(calls, lambda place: (place.line, place.eqn.primitive.name))
    for (line, name), places in groups.items():
        yield _finding(line, name, places)


def _enclosing(place: Place) -> set[str]:
    return {eqn.primitive.name for eqn in place.program.enclosing(place.at)}


def _is_check(place: Place) -> bool:
    """Whether it is a library's check, such as `equinox.error_if`, which runs Python where it fails."""
    stack = stack_of(place.eqn)
    return bool(stack) and not stack[-1].is_users and "cond" in _enclosing(place)


def _finding(line: Line, name: str, places: list[Place]) -> Finding:
    enclosing = _enclosing(places[0])
    is_conditional, in_while = "cond" in enclosing, "while" in enclosing  # whose number of turns is unknown
    times = sum(place.program.times for place in places)
    seconds = times * _CALL_SECONDS
    is_quiet = name.startswith("debug") and times == 1 and not in_while
    severity: Severity = "low" if is_quiet or is_conditional else "high" if seconds >= _HIGH_SECONDS else "medium"
    often = ("at most " if is_conditional else "") + (f"{times:,} times" if times > 1 else "once")
    each = "step of a while loop" if in_while else "run of the program"
    message = f"{_CALLBACKS[name]} calls Python {often} in each {each}, about {seconds_text(seconds)}"
    return finding_at(line, "host", severity, message, _advice(places[0], name), times=times, call_seconds=seconds)


def _advice(place: Place, name: str) -> str:
    is_debug = name.startswith("debug")
    if not is_debug or place.eqn.outvars:
        return "write it with `jax.numpy`, so that the device need not wait for Python, or call it before or after"
    if _enclosing(place).isdisjoint(LOOPS):
        return "take it out when you have seen what it shows, or return the value and print it outside of the program"
    advice = "return what it needs as an output of the loop, which `jax.lax.scan` has for each step, and print "
    return f"{advice}all of it after the loop, once"
