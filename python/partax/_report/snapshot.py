"""A small description of all that one trace depends on: it compares, it prints, and keeps nothing alive."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from partax._jax.private import configuration
from partax._pytree.key_details import ARRAY, FIELD, NODE, VALUE, Detail
from partax._report.part import ATOMS, ArrayParts, Part, atom_key, cut, short_name, weak_refs
from partax._report.placement import context_text
from partax._report.value_parts import ValueParts


class Snapshot(NamedTuple):
    """What one trace depended on, and where the mesh in context was."""

    paths: tuple[str, ...]
    parts: tuple[Part, ...]
    configuration: dict[str, Any]
    mesh: str

    def pairs(self) -> Iterator[tuple[str, Part]]:
        """Each part with its path."""
        return zip(self.paths, self.parts, strict=True)

    def digest(self) -> int | None:
        """A hash of all of it, or None if objects are told apart by their addresses, which come again."""
        if any(part.refs for part in self.parts):
            return None
        return hash((self.paths, tuple(part.key for part in self.parts), tuple(self.configuration.items())))


def take_snapshot(
    described: Iterable[Detail],
    values: Sequence[Any],
    traced: Sequence[Any],
    statics: ValueParts,
    like: Snapshot | None,
) -> Snapshot:
    """The snapshot of a call by its details, of its array leaves and what the program sees of them.

    Equal parts of an earlier snapshot are used again.
    """
    arrays = iter(ArrayParts().parts(values, traced))
    nodes: dict[Any, Part] = {}
    paths: list[str] = []
    parts: list[Part] = []
    for path, kind, value in described:
        if kind == ARRAY:
            parts.append(next(arrays))
        elif kind in (VALUE, FIELD):
            parts.append(statics.value(value))
        elif kind == NODE:
            is_plain = type(value[2]) is int  # keys of users are not looked up
            part = nodes.get(value) if is_plain else None
            if part is None:
                part = _node(*value)
                if is_plain:
                    nodes[value] = part
            parts.append(part)
        else:
            first, run = value
            _run(path, first, run, statics, paths, parts)
            continue
        paths.append(path)
    known_paths, known_parts = tuple(paths), tuple(parts)
    if like is not None and like.paths == known_paths:
        known_paths, known_parts = like.paths, _used_again(like.parts, parts)
    return Snapshot(known_paths, known_parts, configuration(), context_text())


def _used_again(known: tuple[Part, ...], parts: list[Part]) -> tuple[Part, ...]:
    """The parts, with known ones in the place of equal new ones; the known tuple itself where all are equal."""
    equal: dict[Part, Part] = {}  # most parts are one object many times
    for i, (new, old) in enumerate(zip(parts, known, strict=True)):
        if equal.get(new) is old:
            parts[i] = old
        elif old.place == new.place and old.text == new.text and not new.has_originals and old.same(new):
            parts[i] = equal[new] = old
    used = tuple(parts)
    return known if used == known else used


def _run(
    path: str, first: int, values: tuple[Any, ...], statics: ValueParts, paths: list[str], parts: list[Part]
) -> None:
    """Adds many static leaves in a row: one part for all where their values are plain."""
    kinds = set(map(type, values))
    if not kinds <= ATOMS:
        for i, value in enumerate(values, first):
            paths.append(f"{path}[{i}]")
            parts.append(statics.value(value))
        return
    exact = kinds.isdisjoint((float, complex))
    key = values if exact else tuple(value if type(value) is int else atom_key(value) for value in values)
    paths.append(f"{path}[{first}:{first + len(values)}]")
    parts.append(Part(("run", first, tuple(map(type, values)), key), "", f"{len(values)} static leaves"))


def _node(family: str, kind: type | None, children: Any) -> Part:
    if kind is None or family == "none":
        return Part(("node", family), "", "None" if family == "none" else family)
    count = len(children) if isinstance(children, tuple) else children
    if family in ("tuple", "list"):
        return Part(("node", family, count), "", f"{family} of {count}")
    heap = kind.__module__ not in ("builtins", "collections")
    name = short_name(kind)
    order = children if isinstance(children, tuple) else None
    text = f"{name} of {count}" if family in ("dict", "ordered_dict", "default_dict") else None
    if order is not None:
        text = f"{name} in the order {cut(', '.join(map(repr, order)))}"
    return Part(("node", family, id(kind), count, order), "", text or name, weak_refs(kind) if heap else ())
