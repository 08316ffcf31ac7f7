"""Finds arguments that the result replaces and that are not donated."""

from collections.abc import Iterator, Sequence

from partax import _core
from partax._doctor.figures import bytes_text, traced_type
from partax._doctor.finding import Finding, finding_at
from partax._doctor.lines import group_by
from partax._doctor.liveness import is_spread, memory_limit, peak_bytes
from partax._doctor.program import Program, names_text
from partax._doctor.updates import updates_of
from partax._explain.differences import argument_of
from partax._jit.forwarded_arrays import arrays_in_several_places
from partax._pytree.short_text import listed
from partax._pytree.spec_data import leaf_paths

_FEWEST_BYTES = 64 << 20  # that donating saves: no program fails for less
_SHARE_DOUBLED = 0.5  # of the memory: from here on the doubled arguments decide whether a larger batch fits
_SMALL = 1 << 10  # bytes of an argument that the message can leave out
_MESSAGE = (
    "{} {} back in the result with the same types and {} not donated: while the program runs, {} are in memory twice."
)
_ADVICE = "Donate {them}: `{}`, if the caller goes on with the result and does not use {them} again."
_EQUINOX = "dynamic_"  # begins what Equinox calls the arrays of all arguments, which a script's programs do not name


def find(program: Program) -> Iterator[Finding]:
    are_large = sum(leaf.bytes for leaf in program.arguments if not leaf.donated) >= _FEWEST_BYTES
    sizes = _replaced_bytes(program) if are_large else {}
    total = sum(sizes.values())
    if total < _FEWEST_BYTES:
        return
    names = [name for name, size in sizes.items() if size > _SMALL]
    limit = None if is_spread(program) else memory_limit(program)
    is_much = limit is not None and peak_bytes(program) > _SHARE_DOUBLED * limit
    texts = ["a part of the arguments" if name.startswith(_EQUINOX) else f"`{name}`" for name in names]
    places = ", ".join(f"{text} ({bytes_text(sizes[name])})" for text, name in zip(texts, names, strict=True))
    comes, are, them = ("comes", "is", "it") if len(names) == 1 else ("come", "are", "them")
    message = _MESSAGE.format(places, comes, are, bytes_text(total))
    advice = _ADVICE.format(_option(program, names), them=them)
    if shared := _shared_paths(program, names):
        same = f"{listed(shared)} are the same array, which no call can donate twice"
        advice = f"{same}: first copy it, by `jnp.copy`. {advice}"
    figures = {"bytes": total, **{f"{name}_bytes": sizes[name] for name in names}}
    severity = "medium" if is_much else "low"
    yield finding_at(program.line, "donation", severity, message, advice, ", ".join(names), **figures)


def _replaced_bytes(program: Program) -> dict[str, int]:
    """By argument. One that is an array by itself counts if it is the first: a later one is as often data."""
    counts = group_by(program.arguments, lambda leaf: argument_of(leaf.path))
    sizes: dict[str, int] = {}
    for argument, aval in updates_of(program):
        name = argument_of(argument.path)
        is_first = argument.path == program.arguments[0].path
        is_kept = traced_type(argument.aval)[:2] == traced_type(aval)[:2] and not argument.donated
        if is_kept and (is_first or len(counts[name]) > 1):
            sizes[name] = sizes.get(name, 0) + argument.bytes
    return sizes


def _shared_paths(program: Program, names: Sequence[str]) -> list[str]:
    """The paths of an array that is in two places, one of them in the arguments `names`."""
    described, leaves = _core.describe_tree(program.bound_arguments, "")
    paths = [path.removeprefix("['").replace("']", "", 1) for path in leaf_paths(described)]
    groups = [[paths[i] for i in group] for group in arrays_in_several_places(leaves)]
    return next((group for group in groups if {*map(argument_of, group)} & {*names}), [])


def _option(program: Program, names: Sequence[str]) -> str:
    if program.kind == "equinox":
        return 'eqx.filter_jit(donate="all")'
    if program.kind != "partax":
        return f"donate_argnames={names_text(names)}"
    # An object that is called, or a method's, is not an argument that an option can name.
    return f"donate={names_text(names)}" if {program.name, "self"}.isdisjoint(names) else 'donate="all"'
