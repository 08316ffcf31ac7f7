"""Finds what makes the next call trace and compile again: state that comes back as another type, and numbers.

A Python number is a part of the program, so that another one is another program in each call.
"""

from collections.abc import Iterator
from typing import Any

from partax._doctor.array_types import traced_type, type_of
from partax._doctor.entries import Entry, entries_of
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.program import Program, argument_name, definition, names_text
from partax._doctor.updates import updates_of
from partax._pytree.spec_data import ARRAY, NODE

_DEEPEST = 2  # containers in which a part of an argument or a result is looked for
_MOST_PARTS = 50

Entries = dict[str, Entry]
Change = tuple[str, Entry, Entry]  # the path inside an argument, what goes in, and what comes back


def find(program: Program) -> list[Finding]:
    if program.traced is None:  # the traces of a script say themselves why they are made
        return []
    types = {leaf.path: leaf.aval for leaf in program.arguments}
    owner = getattr(program.function, "__self__", None)  # a method's object; a module is an argument of its own
    holder = {"self": owner} if owner is not None else {program.name: program.function}
    arguments: list[tuple[str, Entries]] = []
    for name, value in {**holder, **program.bound_arguments}.items():
        entries = entries_of(value, name)
        entries.update((path, Entry(ARRAY, types[path])) for path in entries.keys() & types.keys())
        arguments += _parts(entries)
    names = list(program.bound_arguments)
    in_place = dict.fromkeys(names[:1], "result")  # of each argument the result at its place
    if type(program.out_info) is tuple:
        in_place = {name: f"result[{i}]" for i, name in enumerate(names)}
    done: list[str] = []
    findings: list[Finding] = []
    for result, entries in _parts(entries_of(program.out_info, "result")):
        if result.startswith(tuple(done)):
            continue
        for path, argument in arguments:
            # An array or a number by itself comes back at its place; a container has the same paths.
            if argument.keys() != entries.keys() or (len(entries) == 1 and in_place.get(path) != result):
                continue
            changes = _changes(argument, entries)
            if changes is None:
                continue
            changes = [change for change in changes if _counts(program, path, change)]
            # Numbers alone that all become arrays are as often the point at which a gradient is taken.
            is_state = any(after.kind != ARRAY for *_, after in changes) and result in ("result", in_place.get(path))
            if not changes or is_state or any(entry.kind == ARRAY for entry in argument.values()):
                done.append(result)
                if changes:
                    findings.append(_finding(program, path, result, changes))
                break
    return findings


def _parts(entries: Entries) -> Iterator[tuple[str, Entries]]:
    """A tree, the containers at its top and the arrays and numbers that its elements are: the path of each, and what is
    inside by the path from there.
    """

    def depth(path: str) -> int:
        return sum(path[len(argument_name(path)) :].count(mark) for mark in ".[")

    nodes = [path for path, entry in entries.items() if entry.kind == NODE and depth(path) <= _DEEPEST]
    for root in nodes[:_MOST_PARTS]:
        paths = [path for path in entries if path.startswith(root) and path[len(root) :][:1] in ("", ".", "[")]
        if len(paths) > 1:
            yield root, {path[len(root) :]: entries[path] for path in paths}
    leaves = {path: entry for path, entry in entries.items() if entry.kind == ARRAY or entry.is_number}
    yield from ((path, {"": entry}) for path, entry in leaves.items() if depth(path) <= 1)


def _changes(argument: Entries, result: Entries) -> list[Change] | None:
    """The numbers, arrays and Nones that differ in a result of the same form; None if anything else differs."""
    changes: list[Change] = []
    for path, before in argument.items():
        after = result[path]
        if before.is_like(after):
            continue
        if before.kind == after.kind == ARRAY:
            is_change = before.value.shape == after.value.shape or _is_grown(before, after)
        elif before.is_number and after.is_number:
            is_change = type(before.value) is type(after.value)
        else:
            is_change = ARRAY in (before.kind, after.kind) and (before.is_number or after.is_number or before.is_none)
        if not is_change:
            return None
        changes.append((path, before, after))
    return changes


def _is_grown(before: Entry, after: Entry) -> bool:
    """Whether an array has one more row, as a cache that each call appends to."""
    if before.value.ndim != after.value.ndim or before.value.dtype != after.value.dtype:
        return False
    differences = [new - old for old, new in zip(before.value.shape, after.value.shape, strict=True) if new != old]
    return differences == [1]


def _counts(program: Program, path: str, change: Change) -> bool:
    """Whether a change is one of a state. A number by itself is if it counts; an array that is computed from other
    arrays alone is not, nor is one of another dtype where all arrays change theirs: that is a function of an array, and
    not a step.
    """
    inside, before, after = change
    if not before.kind == after.kind == ARRAY:
        is_container = inside != "" or not before.is_number
        return is_container or (after.is_number and abs(after.value - before.value) == 1)
    if before.value.shape != after.value.shape:
        return f"{path}{inside}" != argument_name(path) or len(program.bound_arguments) > 1
    updates = updates_of(program)
    if before.value.dtype != after.value.dtype:
        return any(type_of(update.argument.aval) == type_of(update.aval) for update in updates)
    return any(update.argument.path == f"{path}{inside}" for update in updates)


def _finding(program: Program, path: str, result: str, changes: list[Change]) -> Finding:
    """The first change of an argument, with the number of the others."""
    inside, before, after = changes[0]
    more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
    is_number = before.is_number and after.is_number and type(before.value) is not bool
    is_each = is_number or (before.kind == after.kind == ARRAY and _is_grown(before, after))
    message = f"`{path}{inside}` goes in as {before.text} and comes back as {after.text} (in `{result}`){more}: "
    message += f"{'each' if is_each else 'the second'} call traces and compiles again."
    severity: Severity = "high" if is_each else "medium"
    figures: dict[str, Any] = {"count": len(changes), "before": before.text, "after": after.text}
    line, advice = definition(program.function), _advice(f"{path}{inside}", before, after)
    return finding_at(line, "retrace", severity, message, advice, f"{path}{inside}", **figures)


def _advice(path: str, before: Entry, after: Entry) -> str:
    if not before.kind == after.kind == ARRAY:
        field = path.rpartition(".")[2].rpartition("[")[2].strip("]'")
        if before.is_none:
            return f"Begin with an array of type {after.text} for `{field}`."
        option = f", or trace the number by `filter_jit(dynamic={names_text((path,))})`" if field == path else ""
        return f"Begin with an array, which is traced, for `{field}`: `jnp.asarray({before.text})`{option}."
    if before.value.shape != after.value.shape:
        advice = "Keep the shape: begin with an array of the final size, and write each part into it by "
        return f"{advice}`jax.lax.dynamic_update_slice` or `.at[...].set`."
    if traced_type(before.value)[2]:
        return f"Begin with an array of the type that comes back: `jnp.asarray(..., dtype=jnp.{after.value.dtype})`."
    return f"Return it with the dtype that it had: `.astype(jnp.{before.value.dtype})`."
