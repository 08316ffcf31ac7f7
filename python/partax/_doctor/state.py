"""Finds state that comes back with another Python number than it went in with: each call is another program then."""

from collections.abc import Iterator
from typing import Any

import jax

from partax._doctor.definition import definition, wrapper_kind
from partax._doctor.examined import Examined
from partax._doctor.finding import Finding, finding_at
from partax._doctor.returned import returned_names
from partax._pytree.array_text import array_text
from partax._steps.places import Shape, parts_of, shape_of
from partax._transforms.tree_differences import Difference, numbers_that_differ

_DEEPEST = 2  # containers in which a part of an argument is looked for


def find(examined: Examined) -> Iterator[Finding]:
    """Findings of the kind `retrace`."""
    yield from _from_none(examined)
    if wrapper_kind(examined.wrapper) == "jax":  # which traces numbers
        return
    arguments = [it for name, value in examined.bound_arguments.items() for it in _parts(value, name)]
    taken: set[str] = set()
    for path, part in _parts(examined.out_info, "result"):
        if any(path.startswith(it) for it in taken):
            continue
        if any(argument.flat.spec == part.flat.spec for _, argument in arguments):
            taken.add(path)
            continue
        for name, argument in arguments:
            differences = numbers_that_differ(argument.flat, part.flat, name)
            if differences:
                taken.add(path)
                yield _finding(examined, differences, name, path)
                break


def _from_none(examined: Examined) -> Iterator[Finding]:
    """Arguments that are None and come back by their name as something else, such as an average that begins so."""
    result = examined.out_info
    missing = [name for name, value in examined.bound_arguments.items() if value is None]
    names = returned_names(examined.function) if missing and type(result) is tuple else ()
    if not names or len(names) != len(result):
        return
    for at, name in enumerate(names):
        arrays = [it for it in jax.tree.leaves(result[at]) if isinstance(it, jax.ShapeDtypeStruct)]
        if name in missing and arrays:
            more = f" and {len(arrays) - 1} more" if len(arrays) > 1 else ""
            difference = Difference(name, "None", array_text(arrays[0]) + more)
            yield _finding(examined, [difference], name, f"result[{at}]")


def _parts(tree: Any, name: str) -> list[tuple[str, Shape]]:
    """A tree, and the parts of the containers at its top that have an array and more beside it, the largest first."""
    found: list[tuple[str, Shape]] = []
    waiting = [(tree, name, 0)]
    while waiting:
        value, path, depth = waiting.pop(0)
        try:
            shape = shape_of(value, name.partition("[")[0])
        except TypeError:  # a static value that is no key
            continue
        inner = parts_of(value)
        if shape.avals and not shape.is_array:
            found.append((path, shape))
        if inner is not None and depth < _DEEPEST:
            waiting += [(it, f"{path}[{key!r}]", depth + 1) for key, it in inner.items()]
    return found


def _finding(examined: Examined, differences: list[Difference], name: str, result: str) -> Finding:
    first = differences[0]
    others = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
    changes = not any(it == "None" or it.endswith("]") for it in (first.first, first.second))
    often = "each call traces and compiles again" if changes else "the second call traces and compiles again"
    field = first.path.rpartition(".")[2].rpartition("[")[2].strip("]'")
    return finding_at(
        definition(examined.function),
        "retrace",
        "high" if changes else "medium",
        {"values": len(differences), "before": first.first, "after": first.second},
        f"`{first.path}` goes in as {first.first} and comes back as {first.second} (in `{result}`){others}: {often}.",
        f"Begin with an array, which is traced: `jnp.asarray({first.first})` for `{field}`."
        if first.first != "None"
        else f"Begin with a value of the type that comes back, {first.second}, for `{field}`.",
        path=first.path,
    )
