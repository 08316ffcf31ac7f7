"""Finds where the device waits for the host inside of a program: calls of Python."""

from partax._doctor.figures import seconds_text
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.flat_program import LOOPS, Place, places_of, scan_parts
from partax._doctor.lines import Line, grouped, stack_of
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
# A call of a program of one addition takes 13 us, 400 us with an effect and 600 us with an ordered one, the call of
# Python included: jax dispatches programs with effects in Python.
_EFFECT_SECONDS, _ORDERED_SECONDS = 240e-6, 440e-6
_HIGH_SECONDS = 10e-3  # of one run of the program: as much as a training step of a small model


def find(program: Program) -> list[Finding]:
    findings: list[Finding] = []
    for name in _CALLBACKS:
        calls = [place for place in places_of(program, name) if not _is_check(place)]
        findings += [_callback(line, name, places) for line, places in grouped(calls, lambda it: it.line).items()]
    return findings


def _names_around(place: Place) -> set[str]:
    return {eqn.primitive.name for eqn in place.program.around(place.at)}


def _is_check(place: Place) -> bool:
    """Whether it is a library's check, such as `equinox.error_if`, which runs Python where it fails."""
    stack = stack_of(place.eqn)
    return bool(stack) and not stack[-1].is_users and "cond" in _names_around(place)


def _callback(line: Line, name: str, places: list[Place]) -> Finding:
    eqn, inside = places[0].eqn, _names_around(places[0])
    is_conditional, in_while = "cond" in inside, "while" in inside  # whose number of turns is not known
    is_ordered = any("ordered" in type(effect).__name__.lower() for effect in eqn.effects)
    times = sum(place.program.times for place in places)
    called = times * _CALL_SECONDS
    slower = _ORDERED_SECONDS if is_ordered else _EFFECT_SECONDS if eqn.effects else 0.0
    is_quiet = name.startswith("debug") and not is_ordered and times == 1 and not in_while
    severity: Severity = "low" if is_quiet or is_conditional else "medium"
    if called + slower >= _HIGH_SECONDS and not is_conditional:
        severity = "high"
    often = ("at most " if is_conditional else "") + (f"{times:,} times" if times > 1 else "once")
    message = f"{'ordered ' if is_ordered else ''}{_CALLBACKS[name]} calls Python {often} in each "
    message += "step of a while loop, about " if in_while else "run of the program, about "
    message += f"{seconds_text(called)} for each step" if in_while else seconds_text(called + slower)
    if eqn.effects:
        of_each = f"and {seconds_text(slower)} for each run" if in_while else f"of which {seconds_text(slower)}"
        message += f", {of_each} because jax does not take its C++ path for programs with effects"
    figures = {"times": times, "call_seconds": round(called, 6), "slow_path_seconds": slower}
    return finding_at(line, "host", severity, message, _advice(places[0], name), **figures)


def _advice(place: Place, name: str) -> str:
    loop = next((eqn for eqn in place.program.around(place.at) if eqn.primitive.name in LOOPS), None)
    is_debug = name.startswith("debug")
    if loop is None and is_debug:
        return "take it out when you have seen what it shows, or return the value and print it outside of the program"
    if loop is None:
        return "write it with `jax.numpy`, so that the device need not wait for Python, or call it before or after"
    if place.eqn.outvars:
        return "write it with `jax.numpy`, so that no step waits for Python, or have one call of it take many steps"
    afterwards = f"{'print' if is_debug else 'call Python with'} all of it after the loop, once"
    parts = scan_parts(loop) if loop.primitive.name == "scan" else None
    if parts is not None and (parts.xs or len(loop.outvars) > parts.carries):  # a `fori_loop` is a scan without these
        return f"return what it needs as an output of the loop and {afterwards}"
    advice = "write what it needs into a buffer in the carry, by `.at[i].set(...)`, or make the loop a `jax.lax.scan` "
    return f"{advice}that returns it from each step, and {afterwards}"
