"""Finds arguments that Python functions take apart in each call, which costs the host time before the device begins."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from partax._doctor.examined import Examined, argument_name, definition, wrapper_kind
from partax._doctor.finding import Figures, Finding, finding_at
from partax._families.describe import describe, why_called
from partax._jax.nodes import flatten_one_level, is_registered_dataclass
from partax._report.figure_text import seconds_text
from partax._report.flatten_costs import flatten_microseconds, time_flatten_functions

_LONGEST = 100e-6  # seconds of a call: a dispatch by jax takes a tenth, a small program on an accelerator as much
_FEWEST_NODES = 300  # where another jit is the cure: below, one would not change it for that
_WHY = "its class is registered with functions of its own"
_NATIVE = (list, tuple, dict, type(None))  # of jax, with named tuples and registered dataclasses


def find(examined: Examined) -> Iterator[Finding]:
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
    if not total or (not is_partax and count < _FEWEST_NODES):
        return
    time_flatten_functions(total, (examined.args, examined.kwargs))
    taken = {kind: times * flatten_microseconds(kind) for kind, times in total.items()}
    seconds, slowest = sum(taken.values()) * 1e-6, max(taken, key=lambda kind: taken[kind])
    if seconds < _LONGEST:
        return
    arrays = sum(argument_name(leaf.path) in counts for leaf in examined.arguments)
    figures: Figures = {"arrays": arrays, "nodes": count, "flatten_seconds": seconds}
    message = (
        f"Python functions take apart {count:,} nodes of the arguments in each call ({total[slowest]:,} of the class "
        f"`{slowest.__name__}`), which takes the host {seconds_text(seconds)}."
    )
    line, advice = definition(examined.function), _advice(examined, slowest, why[slowest])
    path = max(counts, key=lambda name: counts[name].total())
    yield finding_at(line, "dispatch", "low", figures, message, advice, path)


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
        return (
            f"Say what the functions of `{kind.__name__}` do, by `partax.register_fields({kind.__name__}, data=..., "
            f"static=...)`: {reason}."
        )
    if wrapper_kind(examined.wrapper) == "nnx":
        return "Compile with `partax.nnx.jit`, which reads the objects of nnx without Python."
    return "Compile with `partax.filter_jit`, which reads these classes without Python, or pass a flat list of arrays."
