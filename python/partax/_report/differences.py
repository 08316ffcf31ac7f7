"""What differs between two calls, leaf by leaf, in words."""

from collections.abc import Iterator
from typing import NamedTuple

from partax._report.part import Part, atom_part
from partax._report.snapshot import Snapshot


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
    more = f" and {len(inner) - 1} more" if len(inner) > 1 else ""
    return _named(name + segment, a, b) + more


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
