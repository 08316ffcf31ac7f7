"""A small description of all that one trace depends on: it compares, it prints, and keeps nothing alive."""

import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from partax import _core
from partax._jax.private import configuration
from partax._pytree.call_site import call_site
from partax._pytree.key_details import ARRAY, NODE, RUN, VALUE, Detail, details
from partax._pytree.short_text import one_line
from partax._report.part import (
    ATOMS,
    MAX_TEXT,
    Part,
    ValueParts,
    array_part,
    atom_key,
    context_text,
    short_name,
    weak_refs,
)
from partax._transforms.arguments import names_of_arguments


class Snapshot(NamedTuple):
    """What one trace depended on, and where the mesh in context was."""

    paths: tuple[str, ...]
    parts: tuple[Part, ...]
    configuration: dict[str, Any]
    mesh: str

    def pairs(self) -> Iterator[tuple[str, Part]]:
        return zip(self.paths, self.parts, strict=True)

    def digest(self) -> int | None:
        """A hash of all of it, or None if objects are told apart by their addresses, which come again."""
        if any(part.refs for part in self.parts):
            return None
        return hash((self.paths, tuple(part.key for part in self.parts), tuple(self.configuration.items())))


def described_call(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Detail], list[Any]]:
    """What a static key of a call would tell apart, and the array leaves; for functions that others have compiled."""
    described: list[Detail] = []
    values: list[Any] = []
    for name, value in [*zip(names_of_arguments(fun, len(args)), args, strict=True), *kwargs.items()]:
        try:
            data, leaves = _core.describe_tree(value, name)
        except (TypeError, ValueError, RecursionError):  # not one that partax could take; the trace goes on
            described.append((name, VALUE, type(value)))
            continue
        described += details(data)
        values += leaves
    return described, values


def take_snapshot(
    described: Iterable[Detail],
    values: Sequence[Any],
    traced: Sequence[Any],
    statics: ValueParts,
    like: Snapshot | None,
) -> Snapshot:
    """The snapshot of a call, of its array leaves and what the program sees of them. Parts of `like` are used again."""
    arrays_known: dict[Any, Part] = {}
    arrays = (array_part(*pair, arrays_known) for pair in zip(values, traced, strict=True))
    nodes: dict[Any, Part] = {}
    paths: list[str] = []
    parts: list[Part] = []
    for path, kind, value in described:
        if kind == RUN:
            first, run = value
            if ATOMS.issuperset(map(type, run)):  # one part for all: there may be a hundred thousand
                paths.append(f"{path}[{first}:{first + len(run)}]")
                parts.append(Part(("run", first, tuple(map(atom_key, run))), "", f"{len(run)} static leaves"))
            else:
                paths += [f"{path}[{i}]" for i in range(first, first + len(run))]
                parts += map(statics.value, run)
            continue
        paths.append(path)
        if kind == ARRAY:
            parts.append(next(arrays))
        elif kind == NODE and type(value[2]) is int:  # keys of users are not looked up
            parts.append(nodes.get(value) or nodes.setdefault(value, _node(*value)))
        else:
            parts.append(_node(*value) if kind == NODE else statics.value(value))
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


def _node(family: str, kind: type | None, children: Any) -> Part:
    if kind is None or family == "none":
        return Part(("node", family), "", "None" if family == "none" else family)
    keys = children if isinstance(children, tuple) else None
    count = children if keys is None else len(keys)
    if family in ("tuple", "list"):
        return Part(("node", family, count), "", f"{family} of {count}")
    text = short_name(kind)
    if keys is not None:
        text += f" in the order {one_line(', '.join(map(repr, keys)), MAX_TEXT)}"
    elif family in ("dict", "ordered_dict", "default_dict"):
        text += f" of {count}"
    refs = () if kind.__module__ in ("builtins", "collections") else weak_refs(kind)
    return Part(("node", family, id(kind), count, keys), "", text, refs)


class Record:
    def __init__(self, history: Any, number: int, snapshot: Snapshot, epoch: int):
        self._history = weakref.ref(history)
        self.number = number  # counts the traces of its function, from 1
        self.snapshot = snapshot
        self.epoch = epoch
        self.site = call_site()
        self.reason = ""
        self.failed = False
        self.measured = False  # whether jax has told how long the trace took
        self.tracked = True
        self.compiled = 0  # how often
        self.seconds = {"trace": 0.0, "lower": 0.0, "compile": 0.0}
        # What jax has told of it, in order: the stage, when it began (of `time.perf_counter`) and its seconds. After
        # `compile` comes `run`, until the call returned.
        self.stages: list[tuple[str, float, float]] = []
        self.places: list[Snapshot] = []  # of its further executables
        self.started = time.perf_counter()

    def arrays(self) -> Iterator[tuple[str, Part]]:
        """The arrays that the trace was made for, each with its path."""
        return ((path, part) for path, part in self.snapshot.pairs() if part.key[0] == "array")

    @property
    def array_paths(self) -> tuple[str, ...]:
        return tuple(path for path, _ in self.arrays())

    @property
    def history(self) -> Any:
        """The `History` that it is one of; None if that is gone."""
        return self._history()
