"""What differs between two calls, leaf by leaf, in words."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from partax._report.part import Part
from partax._report.snapshot import Snapshot


class Difference(NamedTuple):
    """One difference: where, from the user's own argument or as a jax option, and what, such as `static int 7 -> 8`.

    `numbers` are the values before and now, if all that differs is the value of a static Python number; `is_inside`,
    whether it is inside of a static value, and no static value of the call itself.
    """

    path: str
    text: str
    numbers: tuple[str, str] | None = None
    is_inside: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def below(path: str, ancestor: str | None) -> bool:
    """Whether one place is in another."""
    return ancestor is not None and path.startswith(ancestor) and path[len(ancestor) : len(ancestor) + 1] in (".", "[")


_COST = 3
"""Of one part that differs."""


def _cost(old: Part, new: Part) -> int:
    """Less for an array of the same dtype or shape."""
    if old.aval is None or new.aval is None:
        return _COST
    return 1 + sum(getattr(old.aval, name, None) != getattr(new.aval, name, None) for name in ("shape", "dtype"))


def distance(old: Snapshot, new: Snapshot) -> int:
    """How much differs, roughly: to find the nearest of many."""
    configuration = 0
    if old.configuration is not new.configuration:
        configuration = _COST * sum(new.configuration.get(name) != value for name, value in old.configuration.items())
    if old.parts is new.parts:
        return configuration
    if old.paths is new.paths or old.paths == new.paths:
        pairs = zip(old.parts, new.parts, strict=True)
        return configuration + sum(_cost(a, b) for a, b in pairs if a is not b and not a.same(b))
    before = dict(old.pairs())
    changed = 0
    for path, part in new.pairs():
        known = before.pop(path, None)
        if known is None:
            changed += _COST
        elif not known.same(part):
            changed += _cost(known, part)
    return configuration + changed + _COST * len(before)


def differences(old: Snapshot, new: Snapshot) -> Iterator[Difference]:
    """What differs between an earlier call and this one, outermost places only, in the order of the arguments."""
    if old.parts is not new.parts:
        yield from _differences(old, new)
    yield from _configuration(old, new)


def _differences(old: Snapshot, new: Snapshot) -> Iterator[Difference]:
    before, now = dict(old.pairs()), dict(new.pairs())
    covered: str | None = None  # below it everything differs with it
    resized: list[str] = []  # below it children come and go with it
    for path, part in now.items():
        if below(path, covered):
            continue
        known = before.get(path)
        if known is None:
            covered = path
            if not any(below(path, list_path) for list_path in resized):
                yield Difference(path, f"{part}, which was not there")
        elif not known.same(part):
            if known.key[0] == part.key[0] == "node":
                if known.key[:2] == part.key[:2] and known.key[1] in ("tuple", "list"):
                    resized.append(path)
                elif known.key[:3] == part.key[:3] and known.key[1] in ("dict", "default_dict"):
                    continue  # its keys are reported, each by its own path
                else:
                    covered = path
            yield from _changed(path, known, part)
            if "node" in (known.key[0], part.key[0]) and known.key[0] != part.key[0]:
                covered = path
    covered = None
    for path, part in before.items():
        if path in now or below(path, covered):
            continue
        covered = path
        hidden = any(below(path, list_path) for list_path in resized)
        if not hidden and not _replaced(path, before, now):
            yield Difference(path, f"{part}, which is there no more")


def _replaced(path: str, before: dict[str, Part], now: dict[str, Part]) -> bool:
    """Whether some node above a path that is gone has been reported, so that this need not be."""
    for other, part in now.items():
        known = before.get(other)
        if known is None or known.same(part) or not below(path, other):
            continue
        if known.key[:3] != part.key[:3] or known.key[1] not in ("dict", "default_dict"):
            return True
    return False


def _changed(path: str, old: Part, new: Part) -> Iterator[Difference]:
    if old.key[0] == new.key[0] == "run":
        yield from _changed_run(path, old, new)
    elif new.label == old.label == "function":
        yield Difference(path, changed_function(old, new))
    elif (inner := _inner(old, new)) is not None:
        if inner and inner[0][0][0] in ".[":
            for name, a, b in inner:
                yield from (change._replace(is_inside=True) for change in _changed(path + name, a, b))
        else:
            yield Difference(path, _renewed(new, inner))
    else:
        is_number = old.key[0] is new.key[0] and new.is_number
        yield Difference(path, _arrow(old, new), (old.text, new.text) if is_number else None)


def _inner(old: Part, new: Part) -> list[tuple[str, Part, Part]] | None:
    """The items in which two parts of one form differ; None if they are of different forms."""
    if not old.items or [name for name, _ in old.items] != [name for name, _ in new.items]:
        return None
    return [(name, a, b) for (name, a), (_, b) in zip(old.items, new.items, strict=True) if not a.same(b)]


def _renewed(new: Part, inner: list[tuple[str, Part, Part]]) -> str:
    """What makes something another one than an earlier one of its form, which differs in `inner`."""
    if inner:
        why = ", ".join(_named(name, a, b) for name, a, b in inner)
    elif new.key[0] == "address":
        why = "of the same function, but another object, compared by identity"
    else:
        why = "a class of that name has been defined again"
    return f"{new} is new ({why})"


def _arrow(old: Part, new: Part) -> str:
    if old.key[0] == new.key[0] == "array" and old.text == new.text:
        if old.place is not None and new.place is not None and old.place != new.place:
            return _moved(old, new)
        return f"{new.text}, mesh {old.key[2]} -> {new.key[2]}"
    if str(old) == str(new):
        if new.key[0] == "node":
            return f"{new} is another class of that name"
        return f"another {new} with the same text"
    if old.label == new.label:
        return f"{old.label} {old.text} -> {new.text}".strip()
    return f"{old} -> {new}"


def _changed_run(path: str, old: Part, new: Part) -> Iterator[Difference]:
    base, first = path[: path.rindex("[")], new.key[1]
    (old_types, before), (new_types, now) = old.key[2:], new.key[2:]
    pairs = enumerate(zip(before, now, strict=False))
    changed = [i for i, (a, b) in pairs if a is not b and (a != b or old_types[i] is not new_types[i])]
    for i in changed[:1]:
        old_type, new_type = old_types[i], new_types[i]
        texts = [_number_text(old_type, before[i]), _number_text(new_type, now[i])]
        more = f" (and {len(changed) - 1} more static leaves of this sequence)" if len(changed) > 1 else ""
        arrow = f"static {old_type.__name__} {texts[0]} -> "
        arrow += texts[1] if old_type is new_type else f"static {new_type.__name__} {texts[1]}"
        is_number = len(changed) == 1 and old_type is new_type and old_type in (int, float, complex)
        yield Difference(f"{base}[{first + i}]", arrow + more, (texts[0], texts[1]) if is_number else None)


def _number_text(kind: type, value: object) -> str:
    packed = value[1] if isinstance(value, tuple) else value
    if kind is float and isinstance(packed, bytes):
        return repr(struct.unpack("d", packed)[0])
    if kind is complex and isinstance(packed, bytes):
        return repr(complex(*struct.unpack("2d", packed)))
    return repr(packed)


def changed_callable(old: Part, new: Part) -> str:
    """What makes a callable another one than an earlier one."""
    if new.label == old.label == "function":
        return changed_function(old, new)
    inner = _inner(old, new)
    return _arrow(old, new) if inner is None else _renewed(new, inner)


def changed_function(old: Part, new: Part) -> str:
    """What makes a function another one than an earlier one."""
    before, now = dict(old.items), dict(new.items)
    if not before or not now:
        return _arrow(old, new) if old.text != new.text else f"{new.text} is new (another object of that name)"
    if ("code" in before) != ("code" in now):
        return f"{old.text} -> {new.text}"
    changed = [name for name, part in now.items() if name in before and not before[name].same(part) and name != "code"]
    # A callable that is told elsewhere has another number when there are more before it.
    told = [name for name in changed if not before[name].key[0] == now[name].key[0] == "met"]
    changes = [_named(name, before[name], now[name]) for name in told or changed]
    changes += [f"{name} is new" for name in now if name not in before]
    changes += [f"{name} is gone" for name in before if name not in now]
    same_code = "code" not in now or before["code"].same(now["code"])
    if not same_code:
        if old.text != new.text:
            return f"{old.text} -> {new.text}"
        return f"{new.text} is new (other code of that name)"
    if "function" in changed:  # of a partial
        return f"{new.text} is new ({', '.join(changes)})"
    if changes:
        return f"{new.text} is new (same code, {', '.join(changes)})"
    return f"{new.text} is new (same code and contents, but another object, compared by identity)"


def unproven_function(new: Part, reading: str) -> str:
    """What makes a function made anew another one though all that it consists of is the same."""
    return f"{new.text} is new (reads {reading}, which cannot be proven unchanged)"


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
    if old.key[0] != "met" and (inner := _inner(old, new)) is not None:
        return _renewed(new, inner).replace("static ", "")
    if old.text == new.text:
        return f"is another {new}".replace("static ", "")
    if old.label == new.label:
        return f"{old.text} -> {new.text}"
    a, b = (part.text if part.label == "function" else str(part) for part in (old, new))
    return f"{a} -> {b}".replace("static ", "")


def _configuration(old: Snapshot, new: Snapshot) -> Iterator[Difference]:
    if old.configuration is new.configuration:
        return
    names = {"axis_env_state": "axes of vmap or shard_map", "mesh_context_manager": "mesh"}
    names["abstract_mesh_context_manager"] = "mesh"
    for name in sorted(set(old.configuration) | set(new.configuration)):
        a, b = old.configuration.get(name), new.configuration.get(name)
        if a != b:
            yield Difference(names.get(name, name), f"{a} -> {b}")


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
