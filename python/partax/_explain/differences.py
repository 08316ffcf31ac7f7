"""The differences between two described calls: the outermost places, each with what was there and what is there now."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax

from partax._explain.description import Description, Entry, are_equal

_NUMBERS = {"static int", "static float", "static complex"}
_LISTED = 5  # differences in one line


class Difference(NamedTuple):
    path: str  # from the user's own argument; or a setting of jax
    old: Entry | None
    new: Entry | None

    def __str__(self) -> str:
        return f"{self.text} ({self.advice})" if self.is_number else self.text

    @property
    def text(self) -> str:
        path, old, new = self
        if self.is_recreated:
            name = str(new).removeprefix("static ").removesuffix(" object")
            return f"`{path}`: `{name}` object was re-created and has no `__eq__`, so it counts by identity"
        if old is None or new is None:
            return f"{path}: {new}, which was not there" if old is None else f"{path}: {old}, which is there no more"
        if str(old) == str(new) and new.aval is not None:
            return f"{path}: {new} on {_arrow(_mesh_text(old.aval), _mesh_text(new.aval))}"
        if str(old) == str(new):
            return f"{path}: another {new}" + (", by its `==`" if new.compared_by == "equality" else "")
        return f"{path}: {old} -> {new if old.label != new.label else new.value_text}"

    @property
    def is_recreated(self) -> bool:
        is_same = self.old is not None and self.new is not None and self.old.text == self.new.text
        return is_same and {entry and entry.compared_by for entry in self[1:]} == {"identity"}

    @property
    def is_number(self) -> bool:
        old, new = self.old, self.new
        return old is not None and new is not None and old.label == new.label in _NUMBERS and new.role != "part"

    @property
    def advice(self) -> str:
        owner, _, name = self.path.rpartition(".")
        if name == "<aux data>":
            return f"it is aux data of `{owner}`: make it a child that is an array"
        if self.new is not None and self.new.role == "field":
            return f"it is a static field of `{owner}`: make it one that holds an array"
        argument = argument_of(self.path)
        return f"pass jnp.asarray({name})" + (f', or dynamic=("{argument}",)' if argument != "self" else "")


def argument_of(path: str) -> str:
    """The argument that a path begins with: `model` of `model.layers[0].weight`."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def reason_of(differences: Sequence[Difference]) -> str:
    more = len(differences) - _LISTED
    return "; ".join(map(str, differences[:_LISTED])) + (f"; {more} more" if more > 0 else "")


def count_differences(old: Description, new: Description) -> int:
    """How many places differ, to find the most similar of several calls."""
    count = new.count_changes(old)
    return len(differences(old, new)) if count is None else count + len([*_changed_settings(old, new)])


def differences(old: Description, new: Description) -> list[Difference]:
    """All of them, in the order of the arguments; those below a place that differs are not listed."""
    changed: dict[str, Difference] = {}
    before, now = ({}, {}) if new.count_changes(old) == 0 else (old.entries, new.entries)
    for path in {**now, **before}:
        a, b = before.get(path), now.get(path)
        is_same = a is not None and b is not None and are_equal(a.key, b.key)
        if not is_same and not any(path[:i] in changed for i, character in enumerate(path) if character in ".["):
            changed[path] = Difference(path, a, b)
    return [*changed.values(), *_changed_settings(old, new)]


def _changed_settings(old: Description, new: Description) -> Iterator[Difference]:
    before, now = old.configuration, new.configuration
    for name in sorted(before.keys() | now.keys()) if before is not now else ():
        values = before.get(name), now.get(name)
        if values[0] != values[1]:
            is_mesh = name.endswith("mesh_context_manager")
            title = "mesh" if is_mesh else "axes of vmap or shard_map" if name == "axis_env_state" else name
            yield Difference(title, *(Entry(value, "", str(value) or "empty") for value in values))


def moved_arrays(old: Description, new: Description) -> list[str]:
    """Where arrays are, which needs another executable but no trace."""
    places = zip(new.array_paths, old.places, new.places, strict=True)
    places = ((path, a, b) for path, a, b in places if a is not None and b is not None and a != b)
    moved = [f"{path}: {_arrow(_place_text(a), _place_text(b))}" for path, a, b in places]
    return moved + ([f"jax.set_mesh: {_arrow(old.mesh, new.mesh)}"] if old.mesh != new.mesh else [])


def _arrow(old: Any, new: Any) -> str:
    return f"{old} -> {new}" + (" on other devices" if str(old) == str(new) else "")


def _mesh_text(aval: Any) -> str:
    mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
    return "no mesh" if mesh is None or mesh.empty else f"mesh {dict(mesh.shape)}"


def _place_text(sharding: Any) -> str:
    if not sharding:
        return "uncommitted"
    kind, usual = sharding.memory_kind, jax.devices()[0].default_memory().kind
    memory = "" if kind in (None, usual) else f" in {kind}"
    if isinstance(sharding, jax.sharding.NamedSharding):
        return f"committed to {sharding.spec} of mesh {dict(sharding.mesh.shape)}{memory}"
    return f"committed to {', '.join(sorted(map(str, sharding.device_set)))}{memory}"
