"""The nodes, arrays and static values of a tree by their paths, with what a trace depends on of each."""

from typing import Any, NamedTuple

import jax

from partax import _core
from partax._doctor.array_types import traced_type, type_text
from partax._pytree.call_site import site_text
from partax._pytree.short_text import one_line
from partax._pytree.spec_data import ARRAY, NODE, RUN, details, repr_text

_LONGEST = 100  # characters of a static value
NUMBERS = (bool, int, float, complex)


class Entry(NamedTuple):
    kind: int  # `ARRAY`, `NODE`, or of a static value
    value: Any  # an array or its type, a static value, or what `details` has for a node

    @property
    def is_none(self) -> bool:
        return self.kind == NODE and self.value[0] == "none"

    @property
    def is_number(self) -> bool:
        return self.kind not in (ARRAY, NODE) and type(self.value) in NUMBERS

    @property
    def text(self) -> str:
        """What a finding calls it."""
        if self.kind == ARRAY:
            return type_text(jax.typeof(self.value) if isinstance(self.value, jax.Array) else self.value)
        if self.kind == NODE:
            family, cls, count = self.value
            return "None" if family == "none" else f"{cls.__name__ if cls else family} of {count}"
        return one_line(repr_text(self.value), _LONGEST)

    @property
    def identity(self) -> str:
        """The same, with the address of an object: one text for each object that lives."""
        if self.kind in (ARRAY, NODE):
            return self.text
        if type(self.value) in (*NUMBERS, str, bytes, type(None)):
            return f"static {type(self.value).__name__} {self.text}"
        code, name = getattr(self.value, "__code__", None), str(getattr(self.value, "__name__", self.text))
        place = f" at {site_text((code.co_filename, code.co_firstlineno))}" if code is not None else ""
        return f"{name}{place} at {id(self.value):#x}"

    def is_like(self, other: "Entry") -> bool:
        """Whether a trace for the one serves the other."""
        if self.kind != other.kind:
            return False
        if self.kind == ARRAY:
            return traced_type(self.value) == traced_type(other.value)
        return self.value == other.value if self.kind == NODE else _core.static_equal(self.value, other.value)


def entries_of(tree: Any, root: str) -> dict[str, Entry]:
    """All of a tree, each node before what is in it; nothing of what partax could not take as an argument."""
    try:
        data, leaves = _core.describe_tree(tree, root)
    except (TypeError, ValueError, RecursionError):
        return {}
    arrays = iter(leaves)
    entries: dict[str, Entry] = {}
    for path, kind, value in details(data):
        if kind == RUN:
            first, values = value
            entries.update((f"{path}[{i}]", Entry(RUN, static)) for i, static in enumerate(values, first))
        elif isinstance(value, jax.ShapeDtypeStruct):
            entries[path] = Entry(ARRAY, value)
        else:
            entries[path] = Entry(kind, next(arrays) if kind == ARRAY else value)
    return entries
