"""Finds what makes the next call trace and compile again: state that comes back as another type, and numbers.

A Python number is a part of the program, so that another one is another program in each call.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from partax._doctor.figures import traced_type
from partax._doctor.finding import Figures, Finding, Severity, finding_at
from partax._doctor.program import Program, names_text
from partax._doctor.updates import updates_of
from partax._explain.description import Entry, are_equal, array_entry, describe
from partax._explain.differences import argument_of

_DEEPEST = 2  # containers in which a part of an argument or a result is looked for
_MOST_PARTS = 50
_NUMBERS = ("static bool", "static int", "static float", "static complex")

Entries = Mapping[str, Entry]


class Change(NamedTuple):
    path: str  # inside an argument
    before: Entry
    after: Entry
    kind: str


def _kind(before: Entry, after: Entry) -> str:
    """Empty if a trace for the one serves the other. An array of another `type`, or `grown` by a row; another `number`;
    a number or None that becomes an `array`; `other` is not a change of state.
    """
    old, new = before.aval, after.aval
    if old is not None and new is not None:
        lengths = [b - a for a, b in zip(old.shape, new.shape, strict=False) if a != b]
        if lengths == [1] and len(old.shape) == len(new.shape) and old.dtype == new.dtype:
            return "grown"
        return "" if traced_type(old) == traced_type(new) else "type" if old.shape == new.shape else "other"
    if are_equal(before.key, after.key):
        return ""
    if old is None and new is None:
        return "number" if before.label in _NUMBERS and before.label == after.label else "other"
    is_begun = before.text == "None" or before.label in _NUMBERS or after.label in _NUMBERS
    return "array" if is_begun else "other"


def find(program: Program) -> Iterator[Finding]:
    if program.traced is None:  # the traces of a script say themselves why they are made
        return
    owner = getattr(program.function, "__self__", None)  # a method's object, or the function itself if it is a module
    holder = {program.name: program.function} if owner is None else {"self": owner}
    described = describe({**holder, **program.bound_arguments}).entries
    types = {leaf.path: array_entry(leaf.aval) for leaf in program.arguments}  # a number of `jax.jit` is traced
    arguments = list(_parts({path: types.get(path, entry) for path, entry in described.items()}))
    names = list(program.bound_arguments)
    places = dict.fromkeys(names[:1], "result")  # of each argument the result at its place
    if type(program.out_info) is tuple:
        places = {name: f"result[{i}]" for i, name in enumerate(names)}
    done: list[str] = []
    for result, entries in _parts(describe({"result": program.out_info}).entries):
        for path, argument in arguments if not result.startswith(tuple(done)) else ():
            # An array or a number by itself comes back at its place; a container has the same paths.
            if argument.keys() != entries.keys() or (len(entries) == 1 and places.get(path) != result):
                continue
            pairs = [(inside, before, entries[inside]) for inside, before in argument.items()]
            changes = [Change(*pair, kind) for pair in pairs if (kind := _kind(*pair[1:]))]
            if any(change.kind == "other" for change in changes):
                continue
            changes = [change for change in changes if _counts(program, path, change)]
            # Numbers alone that all become arrays are as often the point at which a gradient is taken.
            is_state = any(change.after.aval is None for change in changes) and result in ("result", places.get(path))
            if not changes or is_state or any(entry.aval is not None for entry in argument.values()):
                done.append(result)
                if changes:
                    yield _finding(program, path, result, changes)
                break


def _parts(entries: Entries) -> Iterator[tuple[str, Entries]]:
    """The path of a tree, its upper containers, arrays and numbers, each with what is inside by the path from there."""

    def depth(path: str) -> int:
        return sum(path[len(argument_of(path)) :].count(mark) for mark in ".[")

    is_leaf = {path: entry.aval is not None or entry.label in _NUMBERS for path, entry in entries.items()}
    nodes = [path for path, entry in entries.items() if not (is_leaf[path] or entry.label) and depth(path) <= _DEEPEST]
    for root in nodes[:_MOST_PARTS]:
        below = ((path.removeprefix(root), entry) for path, entry in entries.items() if path.startswith(root))
        inside = {path: entry for path, entry in below if path[:1] in ("", ".", "[")}
        if len(inside) > 1:
            yield root, inside
    yield from ((path, {"": entry}) for path, entry in entries.items() if is_leaf[path] and depth(path) <= 1)


def _counts(program: Program, path: str, change: Change) -> bool:
    """Whether a change is one of a state: not an array that is computed from other arrays alone, nor one of another
    dtype where all arrays change theirs.
    """
    inside, before, after, kind = change
    if kind == "number" and inside == "":
        return before.label in _NUMBERS[1:3] and abs(float(after.value_text) - float(before.value_text)) == 1
    if kind in ("number", "array"):
        return inside != "" or before.label not in _NUMBERS
    if kind == "grown":
        return f"{path}{inside}" != argument_of(path) or len(program.bound_arguments) > 1
    updates = updates_of(program)
    if before.aval.dtype != after.aval.dtype:
        return any(traced_type(argument.aval)[:2] == traced_type(aval)[:2] for argument, aval in updates)
    return any(argument.path == f"{path}{inside}" for argument, _ in updates)


def _finding(program: Program, path: str, result: str, changes: list[Change]) -> Finding:
    inside, before, after, kind = changes[0]
    more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
    is_each = kind == "grown" or (kind == "number" and before.label != "static bool")
    message = f"`{path}{inside}` goes in as {before.value_text} and comes back as {after.value_text} (in `{result}`)"
    message += f"{more}: {'each' if is_each else 'the second'} call traces and compiles again."
    severity: Severity = "high" if is_each else "medium"
    figures: Figures = {"count": len(changes), "before": before.value_text, "after": after.value_text}
    line, advice = program.line, _advice(f"{path}{inside}", changes[0])
    return finding_at(line, "retrace", severity, message, advice, f"{path}{inside}", **figures)


def _advice(path: str, change: Change) -> str:
    _, before, after, kind = change
    if kind in ("number", "array"):
        field = path.rpartition(".")[2].rpartition("[")[2].strip("]'")
        if before.label not in _NUMBERS:
            return f"Begin with an array of type {after.value_text} for `{field}`."
        option = f", or trace the number by `filter_jit(dynamic={names_text((path,))})`" if field == path else ""
        return f"Begin with an array, which is traced, for `{field}`: `jnp.asarray({before.value_text})`{option}."
    if kind == "grown":
        return "Keep the shape: begin with an array of the final size, and write each part into it by `.at[...].set`."
    if before.aval.weak_type:
        return f"Begin with an array of the type that comes back: `jnp.asarray(..., dtype=jnp.{after.aval.dtype})`."
    return f"Return it with the dtype that it had: `.astype(jnp.{before.aval.dtype})`."
