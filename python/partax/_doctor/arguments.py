"""Finds large arguments that nothing reads, and those that the result replaces and that are not donated."""

import itertools
from collections.abc import Iterator, Sequence

from partax._doctor.examined import Examined, argument_name, definition, names_text, wrapper_kind
from partax._doctor.finding import Finding, finding_at
from partax._doctor.flat_program import flat_program
from partax._doctor.lines import grouped
from partax._doctor.liveness import is_spread, memory_limit, peak_bytes
from partax._doctor.returned import FEWEST_BYTES, is_of_same_type, returned
from partax._pytree.short_text import array_text
from partax._report.table import bytes_text

_FEWEST_UNUSED = 4 << 20  # of one argument: a smaller one costs nothing that can be measured
_MOST_OF_IT = 0.5  # of an argument's bytes: a model of which one part is not called is as it should be


def find_unused(examined: Examined) -> Iterator[Finding]:
    if sum(leaf.bytes for leaf in examined.arguments) < _FEWEST_UNUSED:
        return
    program = flat_program(examined)
    used = set(itertools.chain(program.results, itertools.chain.from_iterable(program.reads)))
    used.update(program.inputs[i] for i in examined.forwarded)
    pairs = zip(program.inputs, examined.arguments, strict=True)
    line = definition(examined.function)
    for name, its in grouped(pairs, lambda it: argument_name(it[1].path)).items():
        leaves = [leaf for number, leaf in its if number not in used]
        size, whole = sum(leaf.bytes for leaf in leaves), sum(leaf.bytes for _, leaf in its)
        if size < _FEWEST_UNUSED or size <= _MOST_OF_IT * whole:
            continue
        largest, more = max(leaves, key=lambda leaf: leaf.bytes), len(leaves) - 1
        path, what = name, f"`{name}`"
        if size < whole:
            path = largest.path
            what = f"`{path}` ({array_text(largest.aval)})" + (f" and {more} more arrays of `{name}`" if more else "")
        message = f"Nothing in the program reads {what}, {bytes_text(size)} in all."
        advice = "Leave it out of the call, or use it: the caller keeps it in memory for the call, each array costs "
        advice += "dispatch time, and another shape of it traces the function again."
        yield finding_at(line, "unused", "low", message, advice, path, bytes=size, arrays=len(leaves))


_SHARE_OF_LIMIT = 0.5  # from here on the doubled arguments are what decides whether a larger batch fits
_SMALL = 1 << 10  # bytes of an array whose part in the message nobody would miss


def find_not_donated(examined: Examined) -> Iterator[Finding]:
    if sum(leaf.bytes for leaf in examined.arguments if not leaf.donated) < FEWEST_BYTES:
        return
    by_name: dict[str, int] = {}
    for it in returned(examined):
        pairs = [pair for pair in it.arrays if not pair.argument.donated and is_of_same_type(pair)]
        size = sum(pair.argument.bytes for pair in pairs)
        if sum(pair.argument.bytes for pair in pairs if pair.is_update) * 2 > size:
            by_name[it.name] = size
    names = [name for name, size in by_name.items() if size > _SMALL]
    total = sum(by_name.values())
    if total < FEWEST_BYTES or not names:
        return
    limit = None if is_spread(examined) else memory_limit(examined)
    matters = limit is not None and peak_bytes(examined) > _SHARE_OF_LIMIT * limit
    comes, are = ("comes", "is") if len(names) == 1 else ("come", "are")
    called = ["a part of the arguments" if _of_equinox(name) else f"`{name}`" for name in names]
    listed = ", ".join(f"{it} ({bytes_text(by_name[name])})" for it, name in zip(called, names, strict=True))
    message = f"{listed} {comes} back in the result with the same types and {are} not donated: while the program runs, "
    message += f"{bytes_text(total)} are in memory twice."
    advice = f"{_option(examined, names)}, if the caller goes on with the result and uses what it passed no more."
    each = {f"{name}_bytes": by_name[name] for name in names}
    line, severity = definition(examined.function), "medium" if matters else "low"
    yield finding_at(line, "donation", severity, message, advice, ", ".join(names), bytes=total, **each)


def _of_equinox(name: str) -> bool:
    """Whether it is what Equinox calls the arrays of all arguments, which a script's programs have no names for."""
    return name.startswith("dynamic_")


def _option(examined: Examined, names: Sequence[str]) -> str:
    kind = wrapper_kind(examined.wrapper)
    if examined.traced is None:
        is_nnx = any(".states[" in leaf.path for leaf in examined.results)
        kind = "equinox" if _of_equinox(names[0]) else "nnx" if is_nnx else "jax"
    them, these = "it" if len(names) == 1 else "them", names_text(names)
    if kind == "equinox":
        some = "" if _of_equinox(names[0]) else f", `partax.filter_jit(donate={these})` these"
        return f'Donate {them}: `eqx.filter_jit(donate="all")` gives away all arguments{some}'
    jits = {"partax": "filter_jit(donate", "jax": "jax.jit(..., donate_argnames", "nnx": "nnx.jit(..., donate_argnames"}
    return f"Donate {them}: `{jits[kind]}={these})`"
