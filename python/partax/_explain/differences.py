"""What differs between two described calls: the outermost places, each with what was there and what is there now."""

import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from partax._explain.description import Description, Entry

_NUMBERS = ("static int", "static float", "static complex")


class Change(NamedTuple):
    """One difference: where, from the user's own argument or as a jax option, and what, such as `static int 7 -> 8`."""

    path: str
    text: str
    numbers: tuple[str, str] | None = None  # before and now, if only the value of a static Python number differs
    is_field: bool = False  # of a node
    is_recreated: bool = False  # only in being another object

    def __str__(self) -> str:
        path = f"`{self.path}`" if self.is_recreated else self.path
        return f"{path}: {self.text}" + ("" if self.numbers is None else f" ({self.advice})")

    @property
    def advice(self) -> str:
        """The remedy for a number whose every value is a trace."""
        owner, _, name = self.path.rpartition(".")
        if name == "<aux data>":
            return f"it is aux data of `{owner}`: make it a child that is an array"
        if self.is_field:
            return f"it is a static field of `{owner}`: make it one that holds an array"
        argument = re.split(r"[.\[]", self.path, maxsplit=1)[0]
        return f"pass jnp.asarray({name})" + (f', or dynamic=("{argument}",)' if argument != "self" else "")


def is_below(path: str, ancestor: str | None) -> bool:
    return ancestor is not None and path.startswith(ancestor) and path[len(ancestor) : len(ancestor) + 1] in (".", "[")


class Place(NamedTuple):
    """A path at which two calls differ."""

    path: str
    old: Entry | str | None  # a text of a setting of jax; None where there was nothing
    new: Entry | str | None


class Comparison:
    """Compares one call with several. Its entries, which take 70 ms for 10,000 arrays, are made once, if at all."""

    def __init__(self, new: Description):
        self._new = new
        self._entries = functools.cache(new.entries)

    def distance(self, old: Description) -> int:
        """How many places differ, to find the most similar of several calls."""
        count = self._new.count_changed_values(old)
        if count is None:
            return len(self.differences(old))
        return count + len([*_changed_settings(old.configuration, self._new.configuration)])

    def differences(self, old: Description) -> list[Place]:
        """All of them, in the order of the arguments; those below a place that differs are not listed."""
        is_alike = self._new.count_changed_values(old) == 0
        changed = () if is_alike else _changed_entries(old.entries(), self._entries())
        return [*changed, *_changed_settings(old.configuration, self._new.configuration)]


def change_at(place: Place) -> Change:
    """The difference at a place in words."""
    path, old, new = place
    if isinstance(old, Entry) and isinstance(new, Entry):
        return _change(path, old, new)
    if isinstance(old, Entry):
        return Change(path, f"{old}, which is there no more")
    if isinstance(new, Entry):
        return Change(path, f"{new}, which was not there")
    return Change(path, f"{old} -> {new}")


def _changed_entries(before: dict[str, Entry], now: dict[str, Entry]) -> Iterator[Place]:
    changed = set[str]()
    ancestor: str | None = None  # below it all differs with it
    for path, entry in now.items():
        if is_below(path, ancestor):
            continue
        old = before.get(path)
        if old is None or not old.is_same(entry):
            ancestor = path
            changed.add(path)
            yield Place(path, old, entry)
    ancestor = None
    for path, entry in before.items():
        if path in changed:
            ancestor = path
        elif path not in now and not is_below(path, ancestor):
            ancestor = path
            yield Place(path, entry, None)


def _change(path: str, old: Entry, new: Entry) -> Change:
    if old.compared_by == new.compared_by == "identity" and old.text == new.text:
        name = new.text.removesuffix(" object")
        text = f"`{name}` object was re-created and has no `__eq__`, so it counts by identity"
        return Change(path, text, is_recreated=True)
    if str(old) == str(new):
        if old.place is not None and new.place is not None and old.place != new.place:  # another mesh is another type
            return Change(path, _arrow(_place_text(old.place), _place_text(new.place)))
        return Change(path, f"another {new}" + (", by its `==`" if new.compared_by == "equality" else ""))
    if old.label != new.label:
        return Change(path, f"{old} -> {new}")
    numbers = (old.value_text, new.value_text) if new.label in _NUMBERS else None
    return Change(path, f"{new.label} {old.value_text} -> {new.value_text}".strip(), numbers, new.is_field)


def _changed_settings(old: dict[str, Any], new: dict[str, Any]) -> Iterator[Place]:
    for name in sorted(old.keys() | new.keys()) if old is not new else ():
        if old.get(name) != new.get(name):
            is_mesh = name.endswith("mesh_context_manager")
            called = "mesh" if is_mesh else "axes of vmap or shard_map" if name == "axis_env_state" else name
            yield Place(called, str(old.get(name)), str(new.get(name)))


# ---- Where arrays are, which needs another executable but no trace.


def moved_arrays(old: Description, new: Description) -> list[Change]:
    """Arrays that are elsewhere than those of an earlier call of the same trace, and another mesh around it."""
    pairs = zip(new.array_paths, old.places, new.places, strict=True)
    changes = [
        Change(path, _arrow(_place_text(a), _place_text(b)))
        for path, a, b in pairs
        if a is not None and b is not None and a != b
    ]
    if old.mesh != new.mesh:
        changes.append(Change("jax.set_mesh", _arrow(old.mesh, new.mesh)))
    return changes


def _arrow(old: Any, new: Any) -> str:
    return f"{old} -> {new}" + (" on other devices" if str(old) == str(new) else "")


def _place_text(sharding: Any) -> str:
    if not sharding:
        return "uncommitted"
    kind, usual = sharding.memory_kind, jax.devices()[0].default_memory().kind
    memory = "" if kind in (None, usual) else f" in {kind}"
    if isinstance(sharding, jax.sharding.NamedSharding):
        return f"committed to {sharding.spec} of mesh {dict(sharding.mesh.shape)}{memory}"
    devices = sorted(map(str, sharding.device_set))
    return f"committed to {', '.join(devices)}{memory}"
