"""One value, array or node of a call as a small description: it compares, it prints, and keeps nothing alive."""

import enum
import functools
import types
import weakref
import zlib
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._functions.code import names_of
from partax._functions.objects import attribute_of
from partax._jax.private import context_mesh, jit_options
from partax._pytree.call_site import file_text
from partax._pytree.short_text import one_line
from partax._pytree.spec_data import shown

_LONGEST = 40


@functools.lru_cache(256)
def sharding_text(sharding: Any) -> str:
    """A sharding with its devices, where they are not the first ones in their order."""
    if isinstance(sharding, jax.sharding.NamedSharding) and isinstance(sharding.mesh, jax.sharding.AbstractMesh):
        return f"{sharding.spec} of {_mesh_text(sharding.mesh)}"
    usual = next(iter(sharding.device_set)).default_memory().kind
    memory = f" in {sharding.memory_kind}" if sharding.memory_kind not in (None, usual) else ""
    if isinstance(sharding, jax.sharding.NamedSharding):
        return f"{sharding.spec} of {_mesh_text(sharding.mesh)}{memory}"
    devices = sorted(map(str, sharding.device_set))
    return (devices[0] if len(devices) == 1 else f"{type(sharding).__name__} on {len(devices)} devices") + memory


def context_text() -> str:
    """The mesh with devices that `jax.set_mesh` has set; empty where there is none."""
    mesh = context_mesh()
    return "" if mesh is None else _mesh_text(mesh)


def _mesh_text(mesh: Any) -> str:
    text = f"mesh {dict(mesh.shape)}"
    if isinstance(mesh, jax.sharding.AbstractMesh):
        return text
    devices: list[Any] = mesh.devices.flatten().tolist()
    if devices == jax.devices(devices[0].platform)[: len(devices)]:
        return text
    numbers = ", ".join(str(device.id) for device in devices)
    if len(numbers) > _LONGEST:  # a number stands for the rest, as these texts are compared
        numbers = f"{numbers[:_LONGEST]}... (order {zlib.crc32(numbers.encode()):x})"
    return f"{text} on devices {numbers}"


ATOMS = frozenset({bool, int, float, complex, str, bytes, type(None), type(...)})
MAX_TEXT = 60


@dataclass(eq=False, repr=False, slots=True)
class Part:
    key: Any  # equal for parts that a program cannot tell apart
    label: str  # what it is, such as `static int`
    text: str  # its value, such as `7`
    refs: tuple[Any, ...] = ()  # weak references that must live for `key` to hold: it has their objects' addresses
    items: tuple[tuple[str, "Part"], ...] = ()  # what it consists of
    place: str | None = None  # where an array is; empty if jax chooses, None if it has no place, as under a trace
    aval: Any = None  # jax's type of an array
    original: Any = None  # a weak reference to a value whose own `==` decides; None for other values

    @classmethod
    def by_identity(cls, value: Any, label: str, text: str, items: tuple[tuple[str, "Part"], ...] = ()) -> "Part":
        """The part of a value that only itself is the same as."""
        return cls(("address", id(value)), label, text, weak_refs(value), items)

    def same(self, other: "Part") -> bool:
        """Whether a later part is one that a program cannot tell from this one."""
        return self is other or (self.key == other.key and all(ref() is not None for ref in self.refs))

    @property
    def has_originals(self) -> bool:
        """Whether the `==` of some value in it decides."""
        return self.original is not None or any(item.has_originals for _, item in self.items)

    def __str__(self) -> str:
        return f"{self.label} {self.text}".strip()


def _aval_text(aval: Any) -> str:
    inner = getattr(aval, "inner_aval", None)
    if inner is not None:
        return f"ref of {_aval_text(inner)}"
    shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if shape is None or dtype is None:
        return str(aval)
    spec = (*(getattr(getattr(aval, "sharding", None), "spec", None) or ()), *[None] * len(shape))
    axes = [f"{size}@{axis}" if axis is not None else str(size) for size, axis in zip(shape, spec, strict=False)]
    text = f"{dtype}[{','.join(axes)}]" if axes else str(dtype)
    if getattr(getattr(aval, "memory_space", None), "name", "Device") == "Host":
        text += " in host memory"
    return f"weak {text}" if getattr(aval, "weak_type", False) else text


def _array_part(text: str, aval: Any, sharding: Any) -> Part:
    mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
    place = sharding_text(sharding) if sharding else sharding
    return Part(("array", text, None if mesh is None or mesh.empty else str(mesh)), "", text, place=place, aval=aval)


def array_part(value: Any, traced: Any, known: dict[Any, Part]) -> Part:
    """Of an array leaf of a call; `traced` is what the program sees of it, a tracer or the value itself. There is one
    for all that are alike, as a model has thousands of arrays of few shapes.
    """
    if isinstance(value, jax.Array) and not isinstance(value, Tracer):
        sharding = value.sharding if value.committed else ""
    else:
        sharding = value.sharding if isinstance(value, jax.ShapeDtypeStruct) else None
    try:
        aval = jax.typeof(traced)
    except Exception:  # jax cannot trace it, and will say so
        text = f"{getattr(value, 'dtype', type(value).__name__)}{list(getattr(value, 'shape', ()))}"
        return _array_part(text, None, sharding)
    part = known.get((aval, sharding))
    return part or known.setdefault((aval, sharding), _array_part(_aval_text(aval), aval, sharding))


def atom_key(value: Any) -> tuple[type, Any]:
    kind = type(value)
    if kind in (float, complex):  # the text tells -0.0 from 0.0, and is the same for NaN
        return kind, repr(value)
    if kind in (str, bytes) and len(value) > 1024:
        return kind, (value[:MAX_TEXT], len(value), hash(value))
    return kind, value


def atom_part(key: tuple[type, Any]) -> Part:
    kind, value = key
    text = value if kind in (float, complex) else shown(value[0] if type(value) is tuple else value)
    return Part(key, "static" if value is None else f"static {kind.__name__}", one_line(text, MAX_TEXT))


def short_name(kind: type) -> str:
    return kind.__qualname__.rsplit("<locals>.", 1)[-1]


def weak_refs(value: Any) -> tuple[Any, ...]:
    try:
        return (weakref.ref(value),)
    except TypeError:
        return ()


_NESTED = (types.FunctionType, types.MethodType, functools.partial, tuple, list, dict)
_MAX_ITEMS = 256
_MAX_DEPTH = 32


def _is_known(kind: type) -> bool:
    """Whether it is a class of Python's own, or of NumPy's or jax's."""
    return kind.__module__.split(".")[0] in ("builtins", "numpy", "jax", "jaxlib", "pathlib")


class ValueParts:
    def __init__(self, by_structure: bool, verbose: bool):
        self._by_structure = by_structure  # functions that mean the same are the same static value
        self._verbose = verbose  # whether the `repr` of users' objects is asked
        self._open: list[Any] = []  # the values that are being read, outermost first
        self._met: dict[int, tuple[int, Any]] = {}  # the callables of one static value, by address, and which each is
        self._atoms: dict[Any, Part] = {}  # one part for all that are equal

    def value(self, value: Any) -> Part:
        kind = type(value)
        if kind in ATOMS:
            key = atom_key(value)
            return self._atoms.get(key) or self._atoms.setdefault(key, atom_part(key))
        if id(value) in self._met:  # told where it came first, so that functions may call each other
            return Part(("met", self._met[id(value)][0]), "function", self._callable_text(value))
        level = next((level for level, it in enumerate(reversed(self._open), 1) if it is value), 0)
        if level:
            return Part(("enclosing", level), "static", f"its own {kind.__name__}")
        if len(self._open) > _MAX_DEPTH:
            return self._too_deep(value, kind)
        self._open.append(value)
        try:
            return self._compound(value, kind)
        finally:
            self._open.pop()
            if not self._open:
                self._met.clear()

    def _too_deep(self, value: Any, kind: type) -> Part:
        label, text = "function" if callable(value) else "static", self._callable_text(value)
        if self._by_structure and issubclass(kind, _NESTED):  # an equal one must be no cause
            return Part(("deep", attribute_of(value, "__code__", kind)), label, text)
        return Part.by_identity(value, label, text)

    @staticmethod
    def _callable_text(value: Any) -> str:
        if type(value) is types.FunctionType:
            return f"{value.__name__} at {file_text(value.__code__.co_filename)}:{value.__code__.co_firstlineno}"
        return str(attribute_of(value, "__name__") or type(value).__name__)

    def _compound(self, value: Any, kind: type) -> Part:
        if issubclass(kind, types.FunctionType):
            return self._function(value)
        if issubclass(kind, types.MethodType):
            items = (("function", self.value(value.__func__)), ("self", self.value(value.__self__)))
            return self._composite("method", kind, value.__qualname__, items)
        if issubclass(kind, functools.partial):
            named = [(f"argument {i}", item) for i, item in enumerate(value.args)]
            named += [(f"argument {name!r}", item) for name, item in dict(value.keywords).items()]
            return self._around("function", "partial of", value, value.func, named, self._by_structure)
        if issubclass(kind, type):
            module = "" if value.__module__ == "builtins" else f"{value.__module__}."
            return Part.by_identity(value, "class", module + short_name(value))
        if issubclass(kind, enum.Enum):
            return Part(("enum", id(kind), value.name), "static", f"{kind.__name__}.{value.name}", weak_refs(kind))
        if issubclass(kind, (jax.Array, Tracer, np.ndarray)):
            return Part.by_identity(value, "array", array_part(value, value, {}).text)
        items = self._items(value, kind)
        if items is not None:
            return self._composite(f"static {kind.__name__}", kind, self._repr(value), items)
        wrapped = attribute_of(value, "__wrapped__")
        if callable(wrapped) and callable(value):
            return self._wrapper(value, kind, wrapped)
        return self._other(value, kind)

    def _items(self, value: Any, kind: type) -> tuple[tuple[str, Part], ...] | None:
        """What a container consists of, by segments of paths; copied, as a text or a thread may change it."""
        pairs: list[tuple[str, Any]]
        if issubclass(kind, (tuple, list)) and len(value) <= _MAX_ITEMS:
            names = getattr(kind, "_fields", None)
            pairs = [(f".{names[i]}" if names else f"[{i}]", item) for i, item in enumerate(value)]
        elif issubclass(kind, dict) and len(value) <= _MAX_ITEMS:
            pairs = [(f"[{self._repr(key)}]", item) for key, item in dict(value).items()]
        elif getattr(getattr(kind, "__dataclass_params__", None), "frozen", False):
            fields: Any = getattr(kind, "__dataclass_fields__", {})
            pairs = [
                (f".{name}", value.__dict__[name]) for name in fields if name in attribute_of(value, "__dict__", {})
            ]
        else:
            return None
        return tuple((segment, self.value(item)) for segment, item in pairs)

    def _wrapper(self, value: Any, kind: type, wrapped: Any) -> Part:
        """Another callable than a function, such as a `jax.jit` or a `jax.custom_jvp`, of a function."""
        options = {"options": value._options} if isinstance(value, _core.JitFunction) else jit_options(value)
        named = [(f"option {name!r}", option) for name, option in (options or {}).items()]
        return self._around(kind.__name__, "of", value, wrapped, named, self._by_structure and options is not None)

    def _around(
        self, label: str, prefix: str, value: Any, wrapped: Any, named: list[tuple[str, Any]], by_structure: bool
    ) -> Part:
        """A callable of another one, and of what is told by name."""
        self._met[id(value)] = (len(self._met), value)
        inner = self.value(wrapped)
        text = f"{prefix} {inner.text if inner.label == 'function' else inner}"
        items = (("function", inner), *((name, self.value(item)) for name, item in named))
        if by_structure:
            return self._composite(label, type(value), text, items)
        return Part.by_identity(value, label, text, items)

    def _composite(self, label: str, kind: type, text: str, items: tuple[tuple[str, Part], ...]) -> Part:
        refs = tuple(ref for _, item in items for ref in item.refs)
        heap = kind.__module__ != "builtins"
        key = (kind.__name__, id(kind) if heap else None, tuple((segment, item.key) for segment, item in items))
        return Part(key, label, text, refs + (weak_refs(kind) if heap else ()), items)

    def _function(self, function: types.FunctionType) -> Part:
        self._met[id(function)] = (len(self._met), function)
        code = function.__code__
        items = [("code", Part(("code", code), "", ""))]
        attributes = dict(function.__dict__)
        if "__wrapped__" in attributes:  # first, since a change is told where it is met first
            items.append(("attribute '__wrapped__'", self.value(attributes.pop("__wrapped__"))))
        counters = names_of(code).counters  # what the function only counts is no cause of a trace
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name in counters:
                continue
            try:
                part = self.value(cell.cell_contents)
            except ValueError:
                part = Part(("empty",), "", "empty")
            items.append((f"closure cell {name!r}", part))
        defaults = function.__defaults__ or ()
        named = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        pairs = [*zip(named, defaults, strict=True), *dict(function.__kwdefaults__ or {}).items()]
        items += [(f"default of {name!r}", self.value(value)) for name, value in pairs]
        items += [(f"attribute {name!r}", self.value(value)) for name, value in attributes.items()]
        text = self._callable_text(function)
        if self._by_structure:
            key = ("function", id(function.__globals__), tuple((name, item.key) for name, item in items))
            return Part(key, "function", text, tuple(ref for _, item in items for ref in item.refs), tuple(items))
        return Part.by_identity(function, "function", text, tuple(items))

    def _other(self, value: Any, kind: type) -> Part:
        # What a function holds need not be a static value.
        is_held = any(type(it) is types.FunctionType for it in self._open)
        identity = kind.__eq__ is object.__eq__ or (is_held and not self._by_structure)
        hashed = id(value)
        if not identity:
            try:
                hashed = _core.static_hash(value)
            except Exception:  # it is no static value, and is compared by identity
                identity = True
        label = "function" if callable(value) and attribute_of(value, "__name__") is not None else "static"
        refs = weak_refs(value) if identity else weak_refs(kind) if kind.__module__ != "builtins" else ()
        original = None
        if not identity:
            gone = None if _is_known(kind) else lambda: None  # of a value that allows no weak reference
            original = next(iter(weak_refs(value)), gone)
        return Part(("object", id(kind), hashed), label, self._repr(value), refs, original=original)

    def _repr(self, value: Any) -> str:
        kind = type(value)
        if kind in (str, bytes) and len(value) > MAX_TEXT:
            value = value[:MAX_TEXT]
        trusted = kind in ATOMS or _is_known(kind)
        if issubclass(kind, (tuple, list, dict, set, frozenset)):
            if not self._verbose or len(value) > _MAX_ITEMS:
                return f"of {len(value)}"
        elif not trusted and not self._verbose:
            return f"<{short_name(kind)} at {id(value):#x}>"
        if callable(value) and isinstance(attribute_of(value, "__name__"), str):
            return f"{attribute_of(value, '__module__') or kind.__module__}.{value.__name__}"
        try:
            return one_line(repr(value), MAX_TEXT)
        except Exception as error:  # of the user's __repr__
            return f"<{short_name(kind)} whose repr raises {type(error).__name__}>"
