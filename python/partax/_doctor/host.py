"""Finds where the device waits for the host: arguments that Python takes apart, short steps, calls of Python."""

import timeit
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun

from partax._core import JitFunction
from partax._doctor.equations import LOOPS, Equations, bytes_of, scan_parts, type_of
from partax._doctor.examined import Examined, Leaf, argument_name, definition, wrapper_kind
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.lines import Line, grouped, stack_of
from partax._families.describe import describe, why_called
from partax._jax.nodes import flatten_one_level, is_registered_dataclass
from partax._report.table import bytes_text, seconds_text

_FEWEST_CALLED = 50  # nodes with functions of their own: at 2 us each, ten times what a dispatch by jax takes
_FEWEST_NODES = 300  # where another jit is the cure: below, one would not change it for that
_WHY = "its class is registered with functions of its own"
_NATIVE = (list, tuple, dict, type(None))  # of jax, with named tuples and registered dataclasses


def find_flattening(examined: Examined) -> Iterator[Finding]:
    is_partax = wrapper_kind(examined.wrapper) == "partax"
    counts: dict[str, Counter[type]] = {}
    why: dict[type, str] = {}
    for name, value in examined.bound_arguments.items():
        for node in _nodes(value):
            kind = type(node)
            if issubclass(kind, _NATIVE) or is_registered_dataclass(kind):
                continue
            if kind not in why:  # empty where partax reads it itself
                why[kind] = (why_called(kind) or _WHY) if describe(node)[0] == "registered" else ""
            if not is_partax or why[kind]:
                counts.setdefault(name, Counter())[kind] += 1
    total = sum(counts.values(), Counter[type]())
    count = total.total()
    if count < (_FEWEST_CALLED if is_partax else _FEWEST_NODES):
        return
    most = max(total, key=lambda kind: total[kind])
    arrays = sum(argument_name(leaf.path) in counts for leaf in examined.arguments)
    message = f"Python functions take apart {count:,} nodes of the arguments in each call ({total[most]:,} of the "
    message += f"class `{most.__name__}`)."
    line, advice = definition(examined.function), _advice(examined, most, why[most])
    path = max(counts, key=lambda name: counts[name].total())
    yield finding_at(line, "dispatch", "low", message, advice, path, arrays=arrays, nodes=count)


def _nodes(tree: Any) -> Iterator[Any]:
    left = [tree]
    while left:
        node = left.pop()
        children = flatten_one_level(node)
        if children is not None:
            yield node
            left += children[0]


def _advice(examined: Examined, kind: type, reason: str) -> str:
    if reason:
        call = f"partax.register_fields({kind.__name__}, data=..., static=...)"
        return f"Say what the functions of `{kind.__name__}` do, by `{call}`: {reason}."
    if wrapper_kind(examined.wrapper) == "nnx":
        return "Compile with `partax.nnx.jit`, which reads the objects of nnx without Python."
    return "Compile with `partax.filter_jit`, which reads these classes without Python, or pass a flat list of arrays."


_FEWEST_CALLS = 100  # of one function in a script: fewer are no loop
_LONGEST_STEP = 2e-3  # seconds of a step whose dispatch is worth a word
_LEAST_GAIN = 0.3  # of a step's time
_LEAST_SECONDS = 0.2  # that all calls of a script would gain
_MUCH = 10.0
_TURNS = 32
_MOST_EQUATIONS = 5_000
_MOST_BYTES = 64 << 20  # of the arrays that are made to try it


def find_short_steps(examined: Examined) -> Iterator[Finding]:
    """Findings of the kind `dispatch`, of a function that a script has called often, or that is to be measured."""
    is_asked = examined.measure or examined.calls >= _FEWEST_CALLS
    carried = _carried(examined) if is_asked and _may_be_run(examined) else {}
    if not carried:
        return
    try:
        single, together = _measured(examined, carried)
    except Exception:  # what only its own call can have: a mesh, a layout, memory of its own
        return
    gained = (single - together) * examined.calls
    if single > _LONGEST_STEP or together > (1 - _LEAST_GAIN) * single or (examined.calls and gained < _LEAST_SECONDS):
        return
    often = f", {seconds_text(gained)} in {examined.calls:,} calls" if examined.calls else ""
    message = f"a step takes {seconds_text(single)} with its dispatch, and {seconds_text(together)} as one of {_TURNS} "
    message += f"in a call (tried on zeros): a loop of single steps waits for the host{often}."
    # `partax.steps` takes what partax has compiled, and a script's calls are of such alone.
    is_compiled = (examined.calls and not examined.is_of_jax) or isinstance(examined.wrapper, JitFunction)
    jit = "partax.nnx.jit" if wrapper_kind(examined.wrapper) == "nnx" else "partax.filter_jit"
    run = "Run" if is_compiled else f"Compile it by `{jit}`, and run"
    advice = f"{run} {_TURNS} steps in one call: `partax.steps({examined.name}, {_TURNS})`."
    figures = {"calls": examined.calls, "step_seconds": single, "looped_seconds": together, "gain_seconds": gained}
    line, severity = definition(examined.function), "medium" if gained >= _MUCH else "low"
    yield finding_at(line, "dispatch", severity, message, advice, **figures, steps=_TURNS)


def _may_be_run(examined: Examined) -> bool:
    """Whether running the program on zeros does nothing but compute, and comes to an end soon."""
    jaxpr, equations = examined.jaxpr, examined.equations
    if jaxpr.effects or len(equations) > _MOST_EQUATIONS or equations.named("while"):
        return False
    stacked = sum(leaf.bytes for leaf in examined.arguments) * (_TURNS + 1)
    return bool(examined.arguments) and stacked <= _MOST_BYTES


def _carried(examined: Examined) -> dict[int, int]:
    """For each input of an argument that comes back as a whole, if these are several, the output that is like it."""
    types = [type_of(leaf.aval) for leaf in examined.arguments]
    results = [type_of(aval) for aval in examined.jaxpr.out_avals]
    left = grouped(range(len(results)), results.__getitem__)
    roots = grouped(range(len(types)), lambda i: argument_name(examined.arguments[i].path))
    carried: dict[int, int] = {}
    for inputs in roots.values():
        counts = Counter(types[i] for i in inputs)
        if all(len(left.get(it, ())) >= count for it, count in counts.items()):
            carried.update((i, left[types[i]].pop(0)) for i in inputs)
    return carried if len(carried) > 1 else {}


def _measured(examined: Examined, carried: dict[int, int]) -> tuple[float, float]:
    """Seconds of a step: by itself, one call after the other, and as one of many in a call, if it is short."""
    run = jax.jit(jaxpr_as_fun(examined.jaxpr))
    others = [i for i in range(len(examined.arguments)) if i not in carried]

    @jax.jit
    def together(state: Sequence[Any], batches: Sequence[Any]) -> Any:
        def turn(state: Sequence[Any], batch: Sequence[Any]) -> Any:
            values = dict(zip(carried, state, strict=True)) | dict(zip(others, batch, strict=True))
            results = run(*[values[i] for i in range(len(values))])
            rest = [result for i, result in enumerate(results) if i not in carried.values()]
            return [results[i] for i in carried.values()], rest

        return jax.lax.scan(turn, state, batches, length=_TURNS)

    values = [_zeros(leaf) for leaf in examined.arguments]
    batches = [jnp.stack([values[i]] * _TURNS) for i in others]
    single = _seconds(run, values, _TURNS)
    if single > _LONGEST_STEP:
        return single, single
    return single, _seconds(together, [[values[i] for i in carried], batches], 3) / _TURNS


def _zeros(leaf: Leaf) -> Any:
    if jnp.issubdtype(leaf.aval.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), leaf.aval.shape)
    return jnp.zeros(leaf.aval.shape, leaf.aval.dtype)


def _seconds(run: Callable[..., Any], values: Sequence[Any], calls: int) -> float:
    """Of a call, the fastest of three times so many one after the other."""
    jax.block_until_ready(run(*values))
    run_all = timeit.Timer(lambda: jax.block_until_ready([run(*values) for _ in range(calls)][-1]))
    return min(run_all.repeat(number=1, repeat=3)) / calls


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
    return finding_at(line, "host", severity, message, _instead(equations, name, found[0]), **figures)


def _instead(equations: Equations, name: str, index: int) -> str:
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
