"""Finds what makes a program wait for the host: calls of Python, prints, transfers."""

from collections.abc import Iterator
from typing import Any

import jax

from partax._doctor.equations import LOOPS, Equations, bytes_of, scan_parts
from partax._doctor.examined import Examined
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.lines import Line, stack_of
from partax._report.table import bytes_text, seconds_text

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
_EFFECT_SECONDS = 240e-6
_ORDERED_SECONDS = 440e-6
_HIGH_SECONDS = 10e-3  # of one run of the program: as much as a training step of a small model
_FEWEST_MOVED = 1 << 20  # bytes; less is moved in the time of a call


def find(examined: Examined) -> Iterator[Finding]:
    equations = examined.equations
    for name in _CALLBACKS:
        calls = [i for i in equations.named(name) if not _is_check(equations, i)]
        for line, found in equations.by_line(calls).items():
            yield _callback(equations, line, name, found)
    puts = equations.named("device_put")
    moves = [i for i in puts if any(map(_is_elsewhere, equations.eqns[i].params.get("devices", ())))]
    for line, found in equations.by_line(moves).items():
        times = sum(equations.times[i] for i in found)
        moved = sum(bytes_of(var.aval) * equations.times[i] for i in found for var in equations.eqns[i].outvars)
        if moved >= _FEWEST_MOVED:
            severity = "medium" if times > len(found) else "low"
            often = "once" if times == 1 else f"in {times:,} transfers"
            message = f"`jax.device_put` inside of the program moves {bytes_text(moved)} {often} in each run"
            advice = "place the array before the call, or leave it where it is: a program runs on the devices of its "
            advice += "arguments"
            yield finding_at(line, "host", severity, message, advice, times=times, moved_bytes=moved)


def _is_check(equations: Equations, index: int) -> bool:
    """Whether it is a library's check, such as `equinox.error_if`, which runs Python where it fails."""
    stack = stack_of(equations.eqns[index])
    return bool(stack) and not stack[-1].is_users and "cond" in equations.names_around(index)


def _callback(equations: Equations, line: Line, name: str, found: list[int]) -> Finding:
    eqn, inside = equations.eqns[found[0]], equations.names_around(found[0])
    is_conditional, in_while = "cond" in inside, "while" in inside  # nobody knows how many turns that takes
    is_ordered = any("ordered" in type(effect).__name__.lower() for effect in eqn.effects)
    times = sum(equations.times[i] for i in found)
    called = times * _CALL_SECONDS
    slower = _ORDERED_SECONDS if is_ordered else _EFFECT_SECONDS if eqn.effects else 0.0
    is_quiet = name.startswith("debug") and not is_ordered and times == 1 and not in_while
    severity: Severity = "low" if is_quiet or is_conditional else "medium"
    if called + slower >= _HIGH_SECONDS and not is_conditional:
        severity = "high"
    often = ("at most " if is_conditional else "") + (f"{times:,} times" if times > 1 else "once")
    message = f"{'ordered ' if is_ordered else ''}{_CALLBACKS[name]} calls Python {often} in each "
    if in_while:
        message += f"step of a while loop, about {seconds_text(called)} for each step"
    else:
        message += f"run of the program, about {seconds_text(called + slower)}"
    if eqn.effects:
        of_each = f"and {seconds_text(slower)} for each run" if in_while else f"of which {seconds_text(slower)}"
        message += f", {of_each} because jax does not take its C++ path for programs with effects"
    figures = {"times": times, "call_seconds": round(called, 6), "slow_path_seconds": slower}
    return finding_at(line, "host", severity, message, _advice(equations, name, found[0]), **figures)


def _advice(equations: Equations, name: str, index: int) -> str:
    loop = next((i for i in equations.around(index) if equations.names[i] in LOOPS), None)
    has_results = bool(equations.eqns[index].outvars)
    is_debug = name.startswith("debug")
    if loop is not None and has_results:
        return "write it with `jax.numpy`, so that no step waits for Python, or have one call of it take many steps"
    if loop is not None:
        afterwards = f"{'print' if is_debug else 'call Python with'} all of it after the loop, once"
        if _has_outputs(equations.eqns[loop]):
            return f"return what it needs as an output of the loop and {afterwards}"
        advice = "write what it needs into a buffer in the carry, by `.at[i].set(...)`, or make the loop a "
        return f"{advice}`jax.lax.scan` that returns it from each step, and {afterwards}"
    if is_debug:
        return "take it out when you have seen what it shows, or return the value and print it outside of the program"
    return "write it with `jax.numpy`, so that the device need not wait for Python, or call it before or after"


def _has_outputs(loop: Any) -> bool:
    """Whether it is a scan of arrays, or one that stacks its outputs: a `fori_loop` is a scan that does neither."""
    if loop.primitive.name != "scan":
        return False
    parts = scan_parts(loop)
    return parts.xs > 0 or len(loop.outvars) > parts.carries


def _is_elsewhere(target: Any) -> bool:
    """Whether a target of `device_put` is one device or the host's memory; a sharding only places what is computed."""
    kind = target if target is None else getattr(target, "memory_kind", None)
    return isinstance(target, jax.Device) or kind == "pinned_host"
