"""One call as a flat list of entries, each a path and what a program can tell apart there; it keeps no value alive."""

import enum
import functools
import types
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
from jax.core import Tracer

from partax import _core
from partax._functions.installed import is_installed
from partax._functions.objects import attribute_of, unwrapped
from partax._functions.proof import callable_text
from partax._jax.private import configuration, context_mesh
from partax._pytree.short_text import one_line, short_text
from partax._pytree.spec_data import ARRAY, FIELD, NODE, RUN, SpecData, details

PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), type(...)})
_LONGEST = 60


class Entry(NamedTuple):
    """What is at one path."""

    key: Any  # equal for what a program cannot tell apart
    label: str  # what it is, such as `static int`; empty for nodes and arrays
    text: str  # its value, such as `7`; empty where its `repr` is asked only if it differs
    compared_by: str = "content"  # or "identity", or "equality", which is that of its class
    is_field: bool = False  # a static value that is not a leaf, but belongs to a node
    function: Any = None  # a reference to the callable itself
    place: Any = None  # of an array: see `_place_of`

    @property
    def value_text(self) -> str:
        if self.text:
            return self.text
        if self.key[0] in PLAIN:
            kind, value = self.key
            return value if kind in (float, complex) else short_text(value, _LONGEST)
        kind, reference, _ = self.key
        value = None if reference is None else reference()
        return f"{class_name(kind())} object" if value is None else short_text(value, _LONGEST)

    def __str__(self) -> str:
        return f"{self.label} {self.value_text}".strip()

    def is_another_object(self, value: Any) -> bool:
        """Whether this is of a callable, and not of this one."""
        return self.function is not None and self.function != _reference(value)

    def is_same(self, other: "Entry") -> bool:
        if self is other:
            return True
        try:
            return bool(self.key == other.key)
        except Exception:  # of a user's `==`
            return False


def class_name(kind: Any) -> str:
    return "gone" if kind is None else kind.__qualname__.rpartition("<locals>.")[2]


class Description:
    """What one trace depends on, and where its arrays were.

    A first call may have thousands of nodes: all that is done at once is to let go of what would keep values alive. The
    entries are made where a later trace is compared with this one.
    """

    def __init__(self, data: SpecData, arrays: Sequence[Any], traced: Sequence[Any]):
        nodes, statics, paths = data
        self._columns = list(zip(*nodes, strict=True))  # no tuple for each node, which the collector would go through
        classes = self._columns[1]
        references = {kind: _reference(kind) for kind in set(classes)}
        self._columns[1] = tuple(map(references.__getitem__, classes))
        self._statics = _entries_of_statics(statics)
        self._paths = paths
        self.types = tuple(map(_type_of, traced))
        self.places = tuple(map(_place_of, arrays))
        self.mesh = context_mesh()
        self.configuration = configuration()

    @property
    def _data(self) -> SpecData:
        return tuple(zip(*self._columns, strict=True)), self._statics, self._paths

    @property
    def array_paths(self) -> list[str]:
        return [path for kind, path in zip(self._columns[0], self._paths, strict=True) if kind == "dynamic_leaf"]

    def count_changed_values(self, other: "Description") -> int | None:
        """How many arrays and static values differ; None where the structure does."""
        if self._columns != other._columns or self._paths != other._paths:
            return None
        statics = zip(self._statics, other._statics, strict=True)
        types = zip(self.types, other.types, strict=True)
        return sum(not _are_same_slots(a, b) for a, b in statics) + sum(a is not b and a != b for a, b in types)

    def entries(self) -> dict[str, Entry]:
        """Each path with its entry: first a node, then what is below it."""
        arrays = zip(self.types, self.places, strict=True)
        entries: dict[str, Entry] = {}
        for path, kind, value in details(self._data):
            if kind == ARRAY:
                entries[path] = _array_entry(*next(arrays))
            elif kind == NODE:
                entries[path] = _node_entry(*value)
            elif kind == RUN:
                first, items = value
                entries.update((f"{path}[{i}]", _entry(item)) for i, item in enumerate(items, first))
            else:
                entries[path] = _entry(value)._replace(is_field=kind == FIELD)
        return entries


def _reference(value: Any) -> Any:
    """What is equal for one object alone, and does not keep it alive where that can be."""
    try:
        return None if value is None else weakref.ref(value)
    except TypeError:
        return id(value)


def _type_of(traced: Any) -> Any:
    try:
        return jax.typeof(traced)
    except Exception:  # jax cannot trace it, and will say so
        return f"{getattr(traced, 'dtype', type(traced).__name__)}{list(getattr(traced, 'shape', ()))}"


def _place_of(array: Any) -> Any:
    """The sharding of an array that is committed to it; empty where jax chooses, None for what has no place."""
    if isinstance(array, jax.ShapeDtypeStruct):
        return array.sharding
    if isinstance(array, Tracer):
        return None
    return array.sharding if isinstance(array, jax.Array) and array.committed else ""


def _entries_of_statics(statics: Iterable[Any]) -> tuple[Any, ...]:
    """Static values as a specification has them: plain ones, and an entry for each other one."""
    entries: dict[int, Any] = {}  # of one object once, as all layers of a model may have one activation
    slots: list[Any] = []
    for slot in statics:
        if slot and type(slot[0]) not in PLAIN:
            slot = entries.get(id(slot[0])) or entries.setdefault(id(slot[0]), (_object_entry(slot[0]),))
        slots.append(slot)
    return tuple(slots)


def _are_same_slots(old: Any, new: Any) -> bool:
    if not old or not new:
        return old == new
    a, b = old[0], new[0]
    return a is b or (type(a) is type(b) and _entry(a).is_same(_entry(b)))


def _entry(value: Any) -> Entry:
    """Of a static value, a plain one or an entry itself."""
    if type(value) is Entry:
        return value
    kind = type(value)  # the `repr` tells -0.0 from 0.0, and is the same for NaN
    key = kind, repr(value) if kind in (float, complex) else value
    return Entry(key, "static" if value is None else f"static {kind.__name__}", "")


def _object_entry(value: Any) -> Entry:
    kind: Any = type(value)
    reference = _reference(kind)
    if issubclass(kind, type):
        module = "" if value.__module__ == "builtins" else f"{value.__module__}."
        return Entry(id(value), "class", module + class_name(value))
    if issubclass(kind, enum.Enum):
        return Entry((reference, value.name), "static", f"{kind.__name__}.{value.name}")
    has_own_equality = kind.__eq__ is not object.__eq__
    if issubclass(kind, (types.MethodType, functools.partial)) or (callable(value) and not has_own_equality):
        text = _callable_text(value)
        return Entry((reference, text), "function", text, function=_reference(value))
    if not has_own_equality:
        return Entry((reference, _reference(value)), "static", f"{class_name(kind)} object", "identity")
    try:
        value_hash = _core.static_hash(value)  # which tells 1 from True, as `==` does not
    except Exception:  # what is not a static value, which only functions of other libraries take
        value_hash = 0
    if is_installed(kind.__module__):
        return Entry((reference, value_hash), "static", short_text(value, _LONGEST), "equality")
    try:
        return Entry((reference, weakref.ref(value), value_hash), "static", "", "equality")
    except TypeError:
        return Entry((reference, None, value_hash), "static", "", "equality")


def _callable_text(value: Any) -> str:
    """By its code, as the native module compares what it reads; a function of C has only its name."""
    is_python = isinstance(unwrapped(value), types.FunctionType)
    name = None if is_python else attribute_of(value, "__name__")
    module = attribute_of(value, "__module__", type(value).__module__)
    return callable_text(value) if name is None else f"{module}.{name}"


def _node_entry(family: str, reference: Any, children: Any) -> Entry:
    if reference is None or family == "none":
        return Entry(family, "", "None" if family == "none" else family)
    if family in ("tuple", "list"):
        return Entry((family, children), "", f"{family} of {children}")
    name = class_name(reference())
    if family in ("dict", "default_dict"):  # its keys are compared each by its own path
        return Entry((family, reference), "", f"{name} of {children}")
    if not isinstance(children, tuple):
        return Entry((family, reference, children), "", name)
    keys = tuple(_entry(key)[:3] for key in children)
    order = one_line(", ".join(_entry(key).value_text for key in children), _LONGEST)
    return Entry((family, reference, keys), "", f"{name} in the order {order}")


@functools.lru_cache(256)
def _array_entry(aval: Any, place: Any) -> Entry:
    return Entry(aval, "", str(aval).replace("~", "weak ", 1).removesuffix("[]"), place=place)
