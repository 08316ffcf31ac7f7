"""Finds what makes the next call trace and compile again: state that comes back changed in kind, and numbers.

A Python number is a part of the program, so that one which comes back as another one is another program in each call.
"""

from collections.abc import Iterator

from partax._doctor.array_types import traced_type, type_text
from partax._doctor.entries import Entry, entries_of
from partax._doctor.finding import Finding, Severity, finding_at
from partax._doctor.program import Program, argument_name, definition, names_text
from partax._doctor.returned import ReturnedArray, returned
from partax._pytree.spec_data import ARRAY, FIELD, NODE

# What counts in a loop and nothing else; `n`, `k`, `index` or `count` are as often a size that never changes.
_COUNTERS = {
    "i", "t", "it", "itr", "iter", "iteration", "step", "step_idx", "global_step", "current_step", "epoch",
    "counter", "batch_idx",
}  # fmt: skip
_DEEPEST = 2  # containers in which a part of an argument or a result is looked for
_MOST_PARTS = 50


def find(program: Program) -> list[Finding]:
    if program.traced is None:  # what a script has compiled is known by its traces
        return []
    return [*_changed_types(program), *_static_numbers(program), *_changed_state(program)]


def _finding(
    program: Program, path: str, before: str, after: str, result: str, count: int, is_each: bool, advice: str
) -> Finding:
    """Something comes back as another one than it went in, and `count - 1` more of the same argument."""
    others, which = f", and {count - 1} more" if count > 1 else "", "each" if is_each else "the second"
    comes = f"goes in as {before} and comes back as {after} (in `{result}`)"
    message = f"`{path}` {comes}{others}: {which} call traces and compiles again."
    severity: Severity = "high" if is_each else "medium"
    figures = {"count": count, "before": before, "after": after}
    return finding_at(definition(program.function), "retrace", severity, message, advice, path, **figures)


def _changed_types(program: Program) -> Iterator[Finding]:
    """Arguments of which an array comes back with another dtype, shape or weak type."""
    come_back = returned(program)
    updates = sum(pair.is_update for it in come_back for pair in it.arrays)
    for argument in come_back:
        changed = [pair for pair in argument.arrays if traced_type(pair.argument.aval) != traced_type(pair.result.aval)]
        # Where all arrays change, this may be a function of one array, and not a step; a weak type is always a mistake.
        is_state = any(pair.is_grown or _is_weak_alone(pair) for pair in changed)
        if changed and (is_state or updates > sum(pair.is_update for pair in changed)):
            (old, new, *_), count = changed[0], len(changed)
            before, after, grows = type_text(old.aval), type_text(new.aval), old.aval.shape != new.aval.shape
            yield _finding(program, old.path, before, after, new.path, count, grows, _advice_on_type(changed[0]))


def _is_weak_alone(pair: ReturnedArray) -> bool:
    """Whether an array comes back with another weak type, and nothing else."""
    return pair.is_update and traced_type(pair.argument.aval)[:2] == traced_type(pair.result.aval)[:2]


def _advice_on_type(pair: ReturnedArray) -> str:
    before, after = pair.argument.aval, pair.result.aval
    if before.shape != after.shape:
        advice = "Keep the shape: begin with an array of the final size, and write each part into it by "
        return f"{advice}`jax.lax.dynamic_update_slice` or `.at[...].set`."
    if getattr(before, "weak_type", False):
        dtype = getattr(after.dtype, "name", after.dtype)
        return f"Begin with an array of the type that comes back: `jnp.asarray(..., dtype=jnp.{dtype})`."
    if getattr(after, "weak_type", False):
        return "Return it with the dtype that it had, by `.astype(x.dtype)`: that makes a strong type of a weak one."
    return f"Return it with the dtype that it had, by `.astype(jnp.{before.dtype})`, or begin with {after.dtype}."


def _static_numbers(program: Program) -> Iterator[Finding]:
    """Static numbers that look as if each call had another one."""
    result, values = program.out_info, program.bound_arguments
    in_place = dict(zip(values, result, strict=False)) if type(result) is tuple and len(result) > 1 else {}
    for name, value in values.items():
        if name not in program.statics or type(value) not in (int, float):
            continue
        after = in_place.get(name)
        is_returned = type(after) is type(value) and abs(after - value) == 1
        if is_returned or (name in _COUNTERS and type(value) is int):
            comes_back = f", and comes back as {after!r}" if is_returned else ""
            message = f"`{name}` is {value!r}, which is part of the program{comes_back}: a call with another number "
            severity: Severity = "high" if is_returned else "medium"
            line, message = definition(program.function), f"{message}traces and compiles again."
            yield finding_at(line, "retrace", severity, message, _how_to_trace(program, name), name, value=value)


def _how_to_trace(program: Program, name: str) -> str:
    option = f"dynamic={names_text((name,))}"
    if program.kind in ("partax", "partax.nnx"):
        jit = "filter_jit" if program.kind == "partax" else "partax.nnx.jit"
        return f"Trace it: `{jit}({option})`, or pass `jnp.asarray({name})`."
    if program.kind == "equinox":
        return f"Pass `jnp.asarray({name})`, or use `partax.filter_jit({option})`."
    return f"Take `{name}` out of the static arguments, if only its value and no shape depends on it."


def _advice_on_begin(path: str, before: str, after: str) -> str:
    field = path.rpartition(".")[2].rpartition("[")[2].strip("]'")
    begin = f"an array, which is traced: `jnp.asarray({before})`"
    return f"Begin with {f'an array of type {after}' if before == 'None' else begin} for `{field}`."


_Entries = dict[str, Entry]


def _changed_state(program: Program) -> Iterator[Finding]:
    """State that comes back with another Python number than it went in with, or with an array where None was."""
    own = getattr(program.function, "__self__", None)  # a method's object; a module is an argument of its own
    holder = {"self": own} if own is not None else {program.name: program.function}
    states = [entries_of(value, name) for name, value in {**holder, **program.bound_arguments}.items()]
    results = entries_of(program.out_info, "result")
    if not any(entry.is_number or entry.is_none for entries in (*states, results) for entry in entries.values()):
        return
    arguments = [part for entries in states for part in _parts(entries)]
    in_place = {name: f"result[{i}]" for i, name in enumerate(program.bound_arguments)}
    done: list[str] = []
    for result, entries in _parts(results):
        alike = [] if result.startswith(tuple(done)) else [it for it in arguments if it[1].keys() == entries.keys()]
        changes_of = [(path, argument, _changes(argument, entries)) for path, argument in alike]
        if any(changes == [] for *_, changes in changes_of):
            done.append(result)  # which is that argument, unchanged
            continue
        for path, argument, changes in changes_of:
            # Numbers alone that all become arrays are as often the point at which a gradient is taken.
            has_number = any(after.kind != ARRAY for *_, after in changes or ())
            is_state = has_number and result in ("result", in_place.get(path))
            if not changes or not (is_state or any(it.kind == ARRAY for it in argument.values())):
                continue
            if program.kind == "jax":  # which makes arrays of all numbers in leaves
                changes = [it for it in changes if it[1].kind == FIELD or it[1].is_none or it[2].is_none]
            done.append(result)
            if not changes:
                break
            inside, before, after = changes[0]
            is_each = before.is_number and after.is_number and type(before.value) is not bool
            advice = _advice_on_begin(path + inside, before.text, after.text)
            yield _finding(program, path + inside, before.text, after.text, result, len(changes), is_each, advice)
            break


def _changes(argument: _Entries, result: _Entries) -> list[tuple[str, Entry, Entry]] | None:
    """The numbers, arrays and Nones that are others in a result of the same form; None if anything else differs."""
    changes: list[tuple[str, Entry, Entry]] = []
    for path, before in argument.items():
        after = result[path]
        if before.kind == after.kind == ARRAY or before.is_like(after):
            continue
        is_other_number = before.is_number and after.is_number and type(before.value) is type(after.value)
        begins = before.is_number or after.is_number or before.is_none
        if not is_other_number and not (begins and ARRAY in (before.kind, after.kind)):
            return None
        changes.append((path, before, after))
    return changes


def _parts(entries: _Entries) -> Iterator[tuple[str, _Entries]]:
    """A tree, and the containers at its top: the path of each, and what is inside by the path from there."""

    def depth(path: str) -> int:
        return sum(path[len(argument_name(path)) :].count(it) for it in ".[")

    nodes = [path for path, entry in entries.items() if entry.kind == NODE and depth(path) <= _DEEPEST]
    for root in nodes[:_MOST_PARTS]:
        paths = [path for path in entries if path.startswith(root) and path[len(root) :][:1] in ("", ".", "[")]
        if len(paths) > 1:
            yield root, {path[len(root) :]: entries[path] for path in paths}
