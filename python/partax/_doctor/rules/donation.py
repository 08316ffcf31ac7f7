"""Finds arguments that come back in the result and are not donated, and donations that cannot work."""

import inspect
from collections.abc import Sequence

from partax._doctor.array_types import type_of
from partax._doctor.figures import bytes_text
from partax._doctor.finding import Finding, finding_at
from partax._doctor.liveness import is_spread, memory_limit, peak_bytes
from partax._doctor.program import Program, argument_name, definition, names_text
from partax._doctor.returned import returned
from partax._jit.forwarded_arrays import listed

_FEWEST_BYTES = 64 << 20  # that donating saves: no program fails for less
_SHARE_DOUBLED = 0.5  # of the memory: from here on the doubled arguments decide whether a larger batch fits
_SMALL = 1 << 10  # bytes of an argument that the message can leave out


def find(program: Program) -> list[Finding]:
    return _donated_twice(program) + _not_donated(program)


def _not_donated(program: Program) -> list[Finding]:
    if sum(leaf.bytes for leaf in program.arguments if not leaf.donated) < _FEWEST_BYTES:
        return []
    by_name: dict[str, int] = {}
    for argument in returned(program):
        kept = [pair for pair in argument.arrays if not pair.argument.donated]
        pairs = [pair for pair in kept if type_of(pair.argument.aval) == type_of(pair.result.aval)]
        size = sum(pair.argument.bytes for pair in pairs)
        if sum(pair.argument.bytes for pair in pairs if pair.is_update) * 2 > size:
            by_name[argument.name] = size
    names = [name for name, size in by_name.items() if size > _SMALL]
    total = sum(by_name.values())
    if total < _FEWEST_BYTES or not names:
        return []
    limit = None if is_spread(program) else memory_limit(program)
    matters = limit is not None and peak_bytes(program) > _SHARE_DOUBLED * limit
    comes, are = ("comes", "is") if len(names) == 1 else ("come", "are")
    called = ["a part of the arguments" if _is_of_equinox(name) else f"`{name}`" for name in names]
    sizes = ", ".join(f"{it} ({bytes_text(by_name[name])})" for it, name in zip(called, names, strict=True))
    message = f"{sizes} {comes} back in the result with the same types and {are} not donated: while the program runs, "
    message += f"{bytes_text(total)} are in memory twice."
    advice = f"{_option(program, names)}, if the caller goes on with the result and uses what it passed no more."
    is_all = program.kind == "equinox" or not _can_name(program, names)  # then the option donates every argument
    shared = _arrays_shared_by(program, [leaf.path for leaf in program.arguments] if is_all else names)
    if shared:
        same = f"{_same_text(shared)}, which no call can donate"
        advice = f"{same}: first make each its own array, by `jnp.copy`; then {advice}"
    advice = advice[0].upper() + advice[1:]
    each = {f"{name}_bytes": by_name[name] for name in names}
    line, severity = definition(program.function), "medium" if matters else "low"
    return [finding_at(line, "donation", severity, message, advice, ", ".join(names), bytes=total, **each)]


def _donated_twice(program: Program) -> list[Finding]:
    """What the call donates and has in another place too: jax raises an error when it runs."""
    shared = _arrays_shared_by(program, [leaf.path for leaf in program.arguments if leaf.donated])
    if not shared:
        return []
    message = f"{_same_text(shared)}, which the call donates: it will raise an error."
    advice = "Pass a copy, by `jnp.copy`, in all of the places but one, or do not donate the array."
    return [finding_at(definition(program.function), "donation", "high", message, advice, shared[0][0])]


def _arrays_shared_by(program: Program, donated: Sequence[str]) -> list[list[str]]:
    """The paths of leaves that are one array, the largest first, where one of them or its argument is donated."""
    leaves, paths = program.arguments, [leaf.path for leaf in program.arguments]
    is_donated = [path in donated or argument_name(path) in donated for path in paths]
    groups = sorted(program.same_arrays, key=lambda group: -leaves[group[0]].bytes)
    return [[paths[i] for i in group] for group in groups if any(is_donated[i] for i in group)]


def _same_text(shared: list[list[str]]) -> str:
    more = f" ({len(shared):,} arrays are in several places)" if len(shared) > 1 else ""
    return f"{listed(shared[0])} are the same array{more}"


def _is_of_equinox(name: str) -> bool:
    """Whether it is what Equinox calls the arrays of all arguments, which a script's programs have no names for."""
    return name.startswith("dynamic_")


def _option(program: Program, names: Sequence[str]) -> str:
    kind = program.kind
    if kind is None:
        is_nnx = any(".states[" in leaf.path for leaf in program.results)
        kind = "equinox" if _is_of_equinox(names[0]) else "nnx" if is_nnx else "jax"
    them, quoted = "it" if len(names) == 1 else "them", names_text(names)
    if kind == "equinox":
        some = "" if _is_of_equinox(names[0]) else f", `partax.filter_jit(donate={quoted})` these"
        return f'donate {them}: `eqx.filter_jit(donate="all")` donates all arguments{some}'
    if kind == "partax":
        option = quoted if _can_name(program, names) else '"all"'
        return f"donate {them}: `filter_jit(donate={option})`"
    option = f"donate_argnames={quoted}"
    if kind != "partax.nnx" and (positions := _positions(program, names)):
        option = f"donate_argnums={positions}"
    jits = {"jax": "jax.jit(..., ", "nnx": "nnx.jit(..., ", "partax.nnx": "partax.nnx.jit("}
    return f"donate {them}: `{jits[kind]}{option})`"


def _can_name(program: Program, names: Sequence[str]) -> bool:
    """Whether all are arguments, and none is the object that is called."""
    try:
        return set(names) <= set(inspect.signature(program.function).parameters)
    except (TypeError, ValueError):  # no signature is known
        return True


def _positions(program: Program, names: Sequence[str]) -> tuple[int, ...]:
    """The positions of arguments that an option cannot name, as `*args`; nothing where it can name all."""
    try:
        parameters = list(inspect.signature(program.function).parameters.values())
    except (TypeError, ValueError):  # no signature is known
        return ()
    positions: list[int] = []
    is_named = True
    for i, it in enumerate(parameters):
        if it.name in names:
            is_named &= it.kind not in (it.POSITIONAL_ONLY, it.VAR_POSITIONAL)
            positions += range(i, len(program.args)) if it.kind == it.VAR_POSITIONAL else [i]
    return () if is_named else tuple(positions)
