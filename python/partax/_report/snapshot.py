"""A small description of all that one trace depends on, which keeps nothing alive; and what differs in two."""

import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from partax import _core
from partax._jax.private import configuration
from partax._pytree.call_site import call_site
from partax._pytree.short_text import one_line
from partax._pytree.spec_data import ARRAY, NODE, RUN, VALUE, Detail, details
from partax._report.part import (
    ATOMS,
    MAX_TEXT,
    Part,
    ValueParts,
    array_part,
    atom_key,
    atom_part,
    context_text,
    short_name,
    weak_refs,
)
from partax._transforms.wrapper import names_of_arguments


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
        self.places: list[Snapshot] = []  # of its further executables
        self.static_arrays: list[list[Any]] = []  # `arrays_in_statics`, until the trace ends
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


class Difference(NamedTuple):
    """One difference: where, from the user's own argument or as a jax option, and what, such as `static int 7 -> 8`."""

    path: str
    text: str
    numbers: tuple[str, str] | None = None  # before and now, if only the value of a static Python number differs
    is_inside: bool = False  # of a static value, and no static value of the call itself

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def below(path: str, ancestor: str | None) -> bool:
    return ancestor is not None and path.startswith(ancestor) and path[len(ancestor) : len(ancestor) + 1] in (".", "[")


_COST = 3  # of one part that differs; less for an array of the same dtype or shape


def _cost(old: Part | None, new: Part) -> int:
    if old is None or old.aval is None or new.aval is None:
        return _COST
    return 1 + sum(getattr(old.aval, name, None) != getattr(new.aval, name, None) for name in ("shape", "dtype"))


def distance(old: Snapshot, new: Snapshot) -> int:
    """How much differs, roughly: to find the nearest of many."""
    changed = 0
    if old.configuration is not new.configuration:
        changed = _COST * sum(new.configuration.get(name) != value for name, value in old.configuration.items())
    if old.paths == new.paths:
        pairs = () if old.parts is new.parts else zip(old.parts, new.parts, strict=True)
        return changed + sum(_cost(a, b) for a, b in pairs if not a.same(b))
    before = dict(old.pairs())
    together = [(before.pop(path, None), part) for path, part in new.pairs()]
    changed += sum(_cost(known, part) for known, part in together if known is None or not known.same(part))
    return changed + _COST * len(before)


def differences(old: Snapshot, new: Snapshot) -> Iterator[Difference]:
    """What differs between an earlier call and this one, outermost places only, in the order of the arguments."""
    if old.parts is not new.parts:
        yield from _of_parts(dict(old.pairs()), dict(new.pairs()))
    for name in sorted(old.configuration.keys() | new.configuration.keys()):
        a, b = old.configuration.get(name), new.configuration.get(name)
        if a != b:
            is_mesh = name.endswith("mesh_context_manager")
            called = "mesh" if is_mesh else "axes of vmap or shard_map" if name == "axis_env_state" else name
            yield Difference(called, f"{a} -> {b}")


def _of_parts(before: dict[str, Part], now: dict[str, Part]) -> Iterator[Difference]:
    covered: str | None = None  # below it everything differs with it
    told: list[str] = []  # below these, what comes and goes does so with them
    for path, part in now.items():
        known = before.get(path)
        if below(path, covered) or (known is not None and known.same(part)):
            continue
        if known is None:
            covered = path
            if not any(below(path, it) for it in told):
                yield Difference(path, f"{part}, which was not there")
            continue
        if part.key[0] == "node" and known.key[:3] == part.key[:3] and part.key[1] in ("dict", "default_dict"):
            continue  # its keys are reported, each by its own path
        told.append(path)
        yield from _changed(path, known, part)
        is_resized = known.key[:2] == part.key[:2] and part.key[1] in ("tuple", "list")
        if "node" in (known.key[0], part.key[0]) and not is_resized:
            covered = path
    covered = None
    for path, part in before.items():
        if path not in now and not below(path, covered):
            covered = path
            if not any(below(path, it) for it in told):
                yield Difference(path, f"{part}, which is there no more")


def _changed(path: str, old: Part, new: Part) -> Iterator[Difference]:
    inner = _inner(old, new)
    if old.key[0] == new.key[0] == "run":
        pairs = enumerate(zip(old.key[2], new.key[2], strict=True), new.key[1])
        (i, (a, b)), *others = [(i, pair) for i, pair in pairs if pair[0] != pair[1]]
        [change] = _changed(f"{path[: path.rindex('[')]}[{i}]", atom_part(a), atom_part(b))
        more = f" (and {len(others)} more static leaves of this sequence)"
        yield change._replace(text=change.text + more, numbers=None) if others else change
    elif inner and inner[0][0][0] in ".[":
        for name, a, b in inner:
            yield from (change._replace(is_inside=True) for change in _changed(path + name, a, b))
    else:
        is_number = old.key[0] is new.key[0] and new.key[0] in (int, float, complex)
        yield Difference(path, change_text(old, new), (old.text, new.text) if is_number else None)


def change_text(old: Part, new: Part) -> str:
    if new.label == old.label == "function":
        return changed_function(old, new)
    inner = _inner(old, new)
    if inner is None:
        return _arrow(old, new)
    if inner:
        why = ", ".join(_named(name, a, b) for name, a, b in inner)
    elif new.key[0] == "address":
        why = "of the same function, but another object, compared by identity"
    else:
        why = "a class of that name has been defined again"
    return f"{new} is new ({why})"


def _inner(old: Part, new: Part) -> list[tuple[str, Part, Part]] | None:
    """The items in which two parts of one form differ; None if they are of different forms."""
    if not old.items or [name for name, _ in old.items] != [name for name, _ in new.items]:
        return None
    return [(name, a, b) for (name, a), (_, b) in zip(old.items, new.items, strict=True) if not a.same(b)]


def _arrow(old: Part, new: Part) -> str:
    if old.key[0] == new.key[0] == "array" and old.text == new.text:
        if old.place is not None and new.place is not None and old.place != new.place:
            return _moved(old, new)
        return f"{new.text}, mesh {old.key[2]} -> {new.key[2]}"
    if str(old) == str(new):
        is_node = new.key[0] == "node"
        return f"{new} is another class of that name" if is_node else f"another {new} with the same text"
    if old.label == new.label:
        return f"{old.label} {old.text} -> {new.text}".strip()
    return f"{old} -> {new}"


def changed_function(old: Part, new: Part) -> str:
    before, now = dict(old.items), dict(new.items)
    if not before or not now:
        return _arrow(old, new) if old.text != new.text else f"{new.text} is new (another object of that name)"
    if ("code" in before) != ("code" in now):
        return f"{old.text} -> {new.text}"
    changed = [name for name, part in now.items() if name in before and not before[name].same(part)]
    if "code" in changed:
        return f"{new.text} is new (other code of that name)" if old.text == new.text else f"{old.text} -> {new.text}"
    # A callable that is told elsewhere has another number when there are more before it.
    told = [name for name in changed if not before[name].key[0] == now[name].key[0] == "met"]
    changes = [_named(name, before[name], now[name]) for name in told or changed]
    changes += [f"{name} is new" for name in now if name not in before]
    changes += [f"{name} is gone" for name in before if name not in now]
    if not changes:
        return f"{new.text} is new (same code and contents, but another object, compared by identity)"
    same = "" if "function" in changed else "same code, "  # of a partial it may be another one
    return f"{new.text} is new ({same}{', '.join(changes)})"


def _named(name: str, old: Part, new: Part) -> str:
    """The first change inside of something, with its place: `closure cell 'pair'[0] 0.1 -> 0.2`."""
    inner = _inner(old, new)
    if not inner or inner[0][0][0] not in ".[":
        return f"{name} {_brief(old, new)}"
    segment, a, b = inner[0]
    return _named(name + segment, a, b) + (f" and {len(inner) - 1} more" if len(inner) > 1 else "")


def _brief(old: Part, new: Part) -> str:
    """A change of something that needs no introduction: `closure cell 'alpha' 0.1 -> 0.2`."""
    if old.label == new.label == "array":
        return f"holds another array, {new.text}"
    if old.label == new.label == "function":
        return changed_function(old, new)
    if old.key[0] != "met" and _inner(old, new) is not None:
        return change_text(old, new).replace("static ", "")
    if old.text == new.text:
        return f"is another {new}".replace("static ", "")
    if old.label == new.label:
        return f"{old.text} -> {new.text}"
    a, b = (part.text if part.label == "function" else str(part) for part in (old, new))
    return f"{a} -> {b}".replace("static ", "")


def places(old: Snapshot, new: Snapshot) -> Iterator[Difference]:
    """Arrays that are elsewhere than those of an earlier call, which needs another executable but no trace."""
    if old.paths != new.paths:
        return
    for path, a, b in zip(new.paths, old.parts, new.parts, strict=True):
        if a.place is not None and b.place is not None and a.place != b.place:
            yield Difference(path, _moved(a, b))
    if old.mesh != new.mesh:
        yield Difference("jax.set_mesh", f"{old.mesh or None} -> {new.mesh or None}")


def _moved(old: Part, new: Part) -> str:
    return " -> ".join(f"committed to {place}" if place else "uncommitted" for place in (old.place, new.place))
