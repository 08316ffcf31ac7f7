"""The description of one call, to compare it with another: an entry for each path."""

import dataclasses
import enum
import functools
import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import jax
from jax.core import Tracer

from partax import _core
from partax._families.installed import is_installed
from partax._families.objects import attribute_of, unwrapped
from partax._functions.proof import callable_text
from partax._jax.private import configuration, context_mesh
from partax._pytree.short_text import one_line, repr_text, short_text
from partax._pytree.spec_data import ARRAY, FIELD, KEY, NODE, Detail, SpecData, details

PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), type(...)})
_LONGEST = 60
_MAX_PARTS = 32  # items of a static container that are entries of their own
_MAX_DEPTH = 3  # of containers in one another whose items are


class Entry(NamedTuple):
    key: Any  # equal for what a program cannot distinguish; of an array its type
    label: str  # what it is, such as `static int`; empty for nodes and arrays
    text: str = ""  # its value, such as `7`; empty if the `repr` is called only for a difference
    compared_by: str = "content"  # or "identity", or "equality", which is that of its class
    role: Literal["leaf", "field", "part"] = "leaf"  # of a static value: a field of a node, or a part of a static value
    function: Any = None  # a reference to the callable itself

    @property
    def value_text(self) -> str:
        if self.text:
            return self.text
        kind, value = self.key
        if kind in PLAIN:
            return value if kind in (float, complex) else short_text(value, _LONGEST)
        value = value()
        return f"{class_name(kind)} object" if value is None else short_text(value, _LONGEST)

    def __str__(self) -> str:
        return f"{self.label} {self.value_text}".strip()

    @property
    def aval(self) -> Any:
        """The type of an array; None for anything else."""
        return self.key if hasattr(self.key, "dtype") else None


Entries = dict[str, Entry]


def class_name(kind: Any) -> str:
    return kind.__qualname__.rpartition("<locals>.")[2]


def are_equal(old: Any, new: Any) -> bool:
    try:
        return old is new or bool(old == new)
    except Exception:  # of a user's `==`
        return False


class Description:
    """The values that one trace depends on, and where its arrays were. It keeps no object alive."""

    def __init__(self, trees: Sequence[SpecData], arrays: Sequence[Any], traced: Sequence[Any]):
        # No tuple for each node, which the collector would go through.
        self._nodes = [(list(zip(*nodes, strict=True)), paths) for nodes, _, paths in trees]
        self._statics = [_without_objects(statics) for _, statics, _ in trees]
        self.types = tuple(map(_type_of, traced))
        self.places = tuple(map(_place_of, arrays))
        self.mesh = context_mesh()
        self.configuration = configuration()

    def _details(self) -> Iterator[Detail]:
        for (columns, paths), statics in zip(self._nodes, self._statics, strict=True):
            yield from details((tuple(zip(*columns, strict=True)), statics, paths))

    @property
    def array_paths(self) -> list[str]:
        return [path for path, kind, _ in self._details() if kind == ARRAY]

    def count_changes(self, other: "Description") -> int | None:
        """How many arrays and static values differ; None if the structure does."""
        if self._nodes != other._nodes:
            return None
        statics = zip(chain(*self._statics), chain(*other._statics), strict=True)
        types = zip(self.types, other.types, strict=True)
        return sum(not _are_same_slots(a, b) for a, b in statics) + sum(a is not b and a != b for a, b in types)

    @functools.cached_property
    def entries(self) -> Entries:
        """First a node, then what is below it. Made late: 10,000 arrays take 70 ms."""
        types = iter(self.types)
        entries: Entries = {}
        for path, kind, value in self._details():
            if kind == ARRAY:
                entries[path] = array_entry(next(types))
            elif kind == NODE:
                entries[path] = _node_entry(*value)
            elif kind != KEY:
                entries.update((path + segment, entry) for segment, entry in entries_of(value).items())
                if kind == FIELD:
                    entries[path] = entries[path]._replace(role="field")
        return entries


def describe(arguments: Mapping[str, Any]) -> Description:
    trees, leaves = list[SpecData](), list[Any]()
    for name, value in arguments.items():
        try:
            data, arrays = _core.describe_tree(value, name)
        except (TypeError, ValueError, RecursionError):  # partax could not take it as an argument
            data, arrays = _core.describe_tree(type(value), name)
        trees.append(data)
        leaves += arrays
    return Description(trees, leaves, leaves)


def _reference(value: Any) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:
        return id(value)


def _type_of(traced: Any) -> Any:
    try:
        return jax.typeof(traced)
    except Exception:  # jax cannot trace it, and will say so
        return f"{getattr(traced, 'dtype', type(traced).__name__)}{list(getattr(traced, 'shape', ()))}"


def _place_of(array: Any) -> Any:
    """The sharding of an array that is committed to it; empty if jax chooses, None for what has no place."""
    if isinstance(array, jax.ShapeDtypeStruct):
        return array.sharding
    if isinstance(array, Tracer):
        return None
    return array.sharding if isinstance(array, jax.Array) and array.committed else ""


def _without_objects(statics: Sequence[Any]) -> tuple[Any, ...]:
    """Static values: plain ones as they are, and the entries of each other one."""
    objects = {id(slot[0]): slot[0] for slot in statics if slot and type(slot[0]) not in PLAIN}
    entries = {key: (entries_of(value),) for key, value in objects.items()}  # all layers may have one activation
    return tuple(entries.get(id(slot[0]), slot) if slot else slot for slot in statics)


def _are_same_slots(old: Any, new: Any) -> bool:
    if not old or not new:
        return old == new
    return old[0] is new[0] or are_equal(_keys(entries_of(old[0])), _keys(entries_of(new[0])))


def _keys(entries: Entries) -> list[tuple[str, Any]]:
    return [(segment, entry.key) for segment, entry in entries.items()]


def entries_of(value: Any, depth: int = 0) -> Entries:
    """The entry of a static value, and those of its items, by segments of their paths."""
    kind: Any = type(value)
    if kind is dict and type(value.get("")) is Entry:
        return value
    parts = _parts(value, kind) if depth < _MAX_DEPTH else None
    if parts is None:
        return {"": _entry(value, kind)}
    entries = {"": Entry((kind, *parts), "static", f"{class_name(kind)} of {len(parts)}")}
    for segment, part in parts.items():
        below = entries_of(part, depth + 1).items()
        entries.update((segment + inner, entry._replace(role="part")) for inner, entry in below)
    return entries


def _entry(value: Any, kind: Any) -> Entry:
    if kind in PLAIN:  # the `repr` distinguishes -0.0 from 0.0, and is the same for NaN
        key = kind, repr(value) if kind in (float, complex) else value
        return Entry(key, "static" if value is None else f"static {kind.__name__}")
    if kind is jax.ShapeDtypeStruct:
        return array_entry(_type_of(value))
    if issubclass(kind, type):
        return Entry(id(value), "class", f"{value.__module__}.{class_name(value)}".removeprefix("builtins."))
    if issubclass(kind, enum.Enum):
        return Entry((kind, value.name), "static", f"{kind.__name__}.{value.name}")
    has_own_equality = kind.__eq__ is not object.__eq__
    if issubclass(kind, (types.MethodType, functools.partial)) or (callable(value) and not has_own_equality):
        text = _callable_text(value)
        return Entry((kind, text), "function", text, function=_reference(value))
    if not has_own_equality:
        return Entry((kind, _reference(value)), "static", f"{class_name(kind)} object", "identity")
    reference = _reference(value)
    if isinstance(reference, weakref.ref) and not is_installed(kind.__module__):
        return Entry((kind, reference), "static", "", "equality")
    try:
        value_hash = hash(_core.Static(value))  # which distinguishes 1 from True, as `==` does not
    except Exception:  # what is not a static value, which only functions of other libraries take
        value_hash = 0
    return Entry((kind, value_hash), "static", short_text(value, _LONGEST), "equality")


def _parts(value: Any, kind: Any) -> dict[str, Any] | None:
    """The items of a static container or dataclass that is compared by them, if there are not too many."""
    if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.eq:  # type: ignore[attr-defined]
        fields = [field.name for field in dataclasses.fields(kind) if field.compare]
        parts = {f".{name}": attribute_of(value, name) for name in fields}
    elif kind in (tuple, list) or (kind is dict and PLAIN.issuperset(map(type, value))):
        items = value.items() if kind is dict else enumerate(value)
        parts = {f"[{repr_text(key)}]": item for key, item in items}
    else:
        return None
    return parts if len(parts) <= _MAX_PARTS else None


def _callable_text(value: Any) -> str:
    """By its code, as the native module compares what it reads; a function of C has only its name."""
    name = attribute_of(value, "__name__")
    if name is None or isinstance(unwrapped(value), types.FunctionType):
        return callable_text(value)
    return f"{attribute_of(value, '__module__', type(value).__module__)}.{name}"


def _node_entry(family: str, kind: Any, children: Any) -> Entry:
    if kind is None or family == "none":
        return Entry(family, "", "None" if family == "none" else family)
    name = class_name(kind)
    if family in ("tuple", "list", "dict", "default_dict"):  # keys are compared each by its own path
        return Entry((family, kind, None if "dict" in family else children), "", f"{name} of {children}")
    if not isinstance(children, tuple):
        return Entry((family, kind, children), "", name)
    keys = [entries_of(key) for key in children]
    order = one_line(", ".join(key[""].value_text for key in keys), _LONGEST)
    return Entry((family, kind, list(map(_keys, keys))), "", f"{name} in the order {order}")


@functools.lru_cache(256)
def array_entry(aval: Any) -> Entry:
    return Entry(aval, "", str(aval).replace("~", "weak ", 1).removesuffix("[]"))
