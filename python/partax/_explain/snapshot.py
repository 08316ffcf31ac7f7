"""Small descriptions of all that a traced program depends on: they compare, they print, and keep nothing alive."""

import enum
import functools
import struct
import types
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._compat.jax_private import configuration, is_committed, jit_options
from partax._explain.placement import context_text, sharding_text
from partax._explain.switch import file_text
from partax._statics.proofs import read, written_cells
from partax._tree.described import ARRAY, NODE, VALUE, Detail

_ATOMS = frozenset({bool, int, float, complex, str, bytes, type(None), type(...)})
_NESTED = (types.FunctionType, types.MethodType, functools.partial, tuple, list, dict)
_MAX_TEXT = 60
_MAX_ITEMS = 256
_MAX_DEPTH = 32


class Part:
    """One value, array or node of a call.

    Attributes:
      key: equal for parts that a program cannot tell apart.
      label: what it is, such as `static int`.
      text: its value, such as `7`.
      refs: weak references that must live for `key` to hold, since it has their objects' addresses.
      items: what it consists of, as pairs of a name and a part.
      place: where an array is; empty if jax chooses, None if it has no place, as under a trace.
      aval: jax's type of an array.
    """

    __slots__ = ("aval", "items", "key", "label", "place", "refs", "text")

    def __init__(
        self,
        key: Any,
        label: str,
        text: str,
        refs: tuple[Any, ...] = (),
        items: tuple[tuple[str, "Part"], ...] = (),
        place: str | None = None,
        aval: Any = None,
    ):
        self.key = key
        self.label = label
        self.text = text
        self.refs = refs
        self.items = items
        self.place = place
        self.aval = aval

    def same(self, other: "Part") -> bool:
        """Whether a later part is one that a program cannot tell from this one."""
        return self is other or (self.key == other.key and all(ref() is not None for ref in self.refs))

    @property
    def is_number(self) -> bool:
        return self.key[0] in (int, float, complex)

    def __str__(self) -> str:
        return f"{self.label} {self.text}".strip()


class Snapshot(NamedTuple):
    """What one trace depended on, and where the mesh in context was."""

    paths: tuple[str, ...]
    parts: tuple[Part, ...]
    configuration: dict[str, Any]
    mesh: str

    def digest(self) -> int | None:
        """A hash of all of it, or None if objects are told apart by their addresses, which come again."""
        if any(part.refs for part in self.parts):
            return None
        return hash((self.paths, tuple(part.key for part in self.parts), tuple(self.configuration.items())))


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


def array_part(value: Any, traced: Any) -> Part:
    """An array leaf of a call; `traced` is what the program sees of it, a tracer or the value itself."""
    try:
        aval = jax.typeof(traced)
    except Exception:  # jax cannot trace it, and will say so
        aval, text = None, f"{getattr(value, 'dtype', type(value).__name__)}{list(getattr(value, 'shape', ()))}"
    else:
        text = _aval_text(aval)
    mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
    place = None
    sharding = getattr(value, "sharding", None)
    if isinstance(value, jax.Array) and not isinstance(value, Tracer):
        place = sharding_text(value.sharding) if is_committed(value) else ""
    elif sharding is not None and isinstance(value, jax.ShapeDtypeStruct):
        place = sharding_text(sharding)
    return Part(("array", text, None if mesh is None or mesh.empty else str(mesh)), "", text, place=place, aval=aval)


def _atom_key(value: Any) -> tuple[type, Any]:
    kind = type(value)
    if kind is float:
        return kind, struct.pack("d", value)
    if kind is complex:
        return kind, struct.pack("2d", value.real, value.imag)
    if kind in (str, bytes) and len(value) > 1024:
        return kind, (len(value), hash(value), value[:_MAX_TEXT])
    return kind, value


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _name(kind: type) -> str:
    return kind.__qualname__.rsplit("<locals>.", 1)[-1]


def _class_text(kind: type) -> str:
    return _name(kind) if kind.__module__ == "builtins" else f"{kind.__module__}.{_name(kind)}"


def _refs(value: Any) -> tuple[Any, ...]:
    try:
        return (weakref.ref(value),)
    except TypeError:
        return ()


class Snapshotter:
    """Makes parts.

    Args:
      by_structure: whether functions that mean the same are the same static value.
      verbose: whether the `repr` of users' objects may be asked.
    """

    def __init__(self, by_structure: bool, verbose: bool):
        self._by_structure = by_structure
        self._verbose = verbose
        self._open: list[int] = []  # the values that are being read, outermost first
        self._met: dict[int, tuple[int, Any]] = {}  # the callables of one static value, by address, and which each is
        self._functions = 0  # that are open: what they hold need not be a static value

    def snapshot(
        self, described: Iterable[Detail], values: Sequence[Any], traced: Sequence[Any], like: Any = None
    ) -> Snapshot:
        """All of one call.

        Args:
          described: its details.
          values: its array leaves.
          traced: what the program sees of them.
          like: an earlier snapshot, whose equal parts are used again.

        Returns:
          The snapshot.
        """
        arrays = iter(zip(values, traced, strict=True))
        paths: list[str] = []
        parts: list[Part] = []
        for path, kind, value in described:
            if kind == ARRAY:
                leaf, seen = next(arrays)
                parts.append(array_part(leaf, seen))
            elif kind == VALUE:
                parts.append(self.value(value))
            elif kind == NODE:
                family, node_type, children = value
                parts.append(self._node(family, node_type, children))
            else:
                first, run = value
                self._run(path, first, run, paths, parts)
                continue
            paths.append(path)
        known_paths = tuple(paths)
        if like is not None and like.paths == known_paths:
            known_paths = like.paths
            for i, (new, old) in enumerate(zip(parts, like.parts, strict=True)):
                if old.place == new.place and old.text == new.text and old.same(new):
                    parts[i] = old
        return Snapshot(known_paths, tuple(parts), configuration(), context_text())

    def _run(self, path: str, first: int, values: tuple[Any, ...], paths: list[str], parts: list[Part]) -> None:
        kinds = set(map(type, values))
        if not kinds <= _ATOMS:
            for i, value in enumerate(values, first):
                paths.append(f"{path}[{i}]")
                parts.append(self.value(value))
            return
        exact = kinds.isdisjoint((float, complex))
        key = values if exact else tuple(value if type(value) is int else _atom_key(value) for value in values)
        paths.append(f"{path}[{first}:{first + len(values)}]")
        parts.append(Part(("run", first, tuple(map(type, values)), key), "", f"{len(values)} static leaves"))

    def _node(self, family: str, kind: type | None, children: Any) -> Part:
        if kind is None or family == "none":
            return Part(("node", family), "", "None" if family == "none" else family)
        count = len(children) if isinstance(children, tuple) else children
        if family in ("tuple", "list"):
            return Part(("node", family, count), "", f"{family} of {count}")
        heap = kind.__module__ not in ("builtins", "collections")
        name = _name(kind)
        order = children if isinstance(children, tuple) else None
        text = f"{name} of {count}" if family in ("dict", "ordered_dict", "default_dict") else None
        if order is not None:
            text = f"{name} in the order {_cut(', '.join(map(repr, order)))}"
        return Part(("node", family, id(kind), count, order), "", text or name, _refs(kind) if heap else ())

    def value(self, value: Any) -> Part:
        """A static value."""
        kind = type(value)
        if kind in _ATOMS:
            return Part(
                _atom_key(value), f"static {kind.__name__}" if value is not None else "static", self._repr(value)
            )
        if id(value) in self._met:  # told where it came first, so that functions may call each other
            return Part(("met", self._met[id(value)][0]), "function", self._callable_text(value))
        if id(value) in self._open:
            level = len(self._open) - self._open.index(id(value))
            return Part(("enclosing", level), "static", f"its own {kind.__name__}")
        if len(self._open) > _MAX_DEPTH:
            return self._too_deep(value, kind)
        self._open.append(id(value))
        try:
            return self._compound(value, kind)
        finally:
            self._open.pop()
            if not self._open:
                self._met.clear()

    def _too_deep(self, value: Any, kind: type) -> Part:
        label = "function" if callable(value) else "static"
        if self._by_structure and issubclass(kind, _NESTED):  # an equal one must be no cause
            return Part(("deep", read(value, "__code__", kind)), label, self._callable_text(value))
        return Part(("address", id(value)), label, self._callable_text(value), _refs(value))

    @staticmethod
    def _callable_text(value: Any) -> str:
        if type(value) is types.FunctionType:
            return f"{value.__name__} at {file_text(value.__code__.co_filename)}:{value.__code__.co_firstlineno}"
        return str(read(value, "__name__") or type(value).__name__)

    def _meet(self, value: Any) -> None:
        self._met[id(value)] = (len(self._met), value)

    def _compound(self, value: Any, kind: type) -> Part:
        if issubclass(kind, types.FunctionType):
            return self._function(value)
        if issubclass(kind, types.MethodType):
            items = (("function", self.value(value.__func__)), ("self", self.value(value.__self__)))
            return self._composite("method", kind, value.__qualname__, items)
        if issubclass(kind, functools.partial):
            return self._partial(value)
        if issubclass(kind, type):
            return Part(("address", id(value)), "class", _class_text(value), _refs(value))
        if issubclass(kind, enum.Enum):
            return Part(("enum", id(kind), value.name), "static", f"{kind.__name__}.{value.name}", _refs(kind))
        if issubclass(kind, (jax.Array, Tracer, np.ndarray)):
            return Part(("address", id(value)), "array", array_part(value, value).text, _refs(value))
        items = self._items(value, kind)
        if items is not None:
            return self._composite(f"static {kind.__name__}", kind, self._repr(value), items)
        wrapped = read(value, "__wrapped__")
        if callable(wrapped) and callable(value):
            return self._wrapper(value, kind, wrapped)
        return self._other(value, kind)

    def _items(self, value: Any, kind: type) -> tuple[tuple[str, Part], ...] | None:
        """What a container consists of, with the segments of its items' paths.

        Of dictionaries always copies: while an item is looked at, its text or another thread may change them.
        """
        pairs: list[tuple[str, Any]]
        if issubclass(kind, tuple) and len(value) <= _MAX_ITEMS:
            names = getattr(kind, "_fields", None)
            pairs = [(f".{names[i]}" if names else f"[{i}]", item) for i, item in enumerate(value)]
        elif issubclass(kind, list) and len(value) <= _MAX_ITEMS:
            pairs = [(f"[{i}]", item) for i, item in enumerate(value)]
        elif issubclass(kind, dict) and len(value) <= _MAX_ITEMS:
            pairs = [(f"[{self._repr(key)}]", item) for key, item in dict(value).items()]
        elif getattr(getattr(kind, "__dataclass_params__", None), "frozen", False):
            fields: Any = getattr(kind, "__dataclass_fields__", {})
            pairs = [(f".{name}", value.__dict__[name]) for name in fields if name in read(value, "__dict__", {})]
        else:
            return None
        return tuple((segment, self.value(item)) for segment, item in pairs)

    def _wrapper(self, value: Any, kind: type, wrapped: Any) -> Part:
        """Another callable than a function, such as a `jax.jit` or a `jax.custom_jvp`, of a function."""
        self._meet(value)
        inner = self.value(wrapped)
        text = f"of {inner.text if inner.label == 'function' else inner}"
        options = {"options": value._options} if type(value) is _core.JitFunction else jit_options(value)
        items = [("function", inner)]
        items += [(f"option {name!r}", self.value(option)) for name, option in (options or {}).items()]
        if self._by_structure and options is not None:
            return self._composite(kind.__name__, kind, text, tuple(items))
        return Part(("address", id(value)), kind.__name__, text, _refs(value), tuple(items))

    def _composite(self, label: str, kind: type, text: str, items: tuple[tuple[str, Part], ...]) -> Part:
        refs = tuple(ref for _, item in items for ref in item.refs)
        heap = kind.__module__ != "builtins"
        key = (kind.__name__, id(kind) if heap else None, tuple((segment, item.key) for segment, item in items))
        return Part(key, label, text, refs + (_refs(kind) if heap else ()), items)

    def _function(self, function: types.FunctionType) -> Part:
        self._functions += 1
        try:
            return self._opened_function(function)
        finally:
            self._functions -= 1

    def _opened_function(self, function: types.FunctionType) -> Part:
        self._meet(function)
        code = function.__code__
        items = [("code", Part(("code", code), "", ""))]
        attributes = dict(function.__dict__)
        if "__wrapped__" in attributes:  # first, since a change is told where it is met first
            items.append(("attribute '__wrapped__'", self.value(attributes.pop("__wrapped__"))))
        cells = zip(code.co_freevars, function.__closure__ or (), written_cells(code), strict=True)
        for name, cell, written in cells:
            if written:  # it sets the variable itself, as a counter: that is no cause of a trace
                continue
            try:
                contents = cell.cell_contents
            except ValueError:
                items.append((f"closure cell {name!r}", Part(("empty",), "", "empty")))
                continue
            items.append((f"closure cell {name!r}", self.value(contents)))
        defaults = function.__defaults__ or ()
        names = code.co_varnames[: code.co_argcount]
        items += [
            (f"default of {name!r}", self.value(value))
            for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=True)
        ]
        items += [
            (f"default of {name!r}", self.value(value)) for name, value in dict(function.__kwdefaults__ or {}).items()
        ]
        items += [(f"attribute {name!r}", self.value(value)) for name, value in attributes.items()]
        text = self._callable_text(function)
        if self._by_structure:
            key = ("function", id(function.__globals__), tuple((name, item.key) for name, item in items))
            return Part(key, "function", text, tuple(ref for _, item in items for ref in item.refs), tuple(items))
        return Part(("address", id(function)), "function", text, _refs(function), tuple(items))

    def _partial(self, value: functools.partial[Any]) -> Part:
        self._meet(value)
        inner = self.value(value.func)
        items = [("function", inner)]
        items += [(f"argument {i}", self.value(item)) for i, item in enumerate(value.args)]
        items += [(f"argument {name!r}", self.value(item)) for name, item in dict(value.keywords).items()]
        text = f"partial of {inner.text if inner.label == 'function' else inner}"
        if self._by_structure:
            return self._composite("function", type(value), text, tuple(items))
        return Part(("address", id(value)), "function", text, _refs(value), tuple(items))

    def _other(self, value: Any, kind: type) -> Part:
        identity = kind.__eq__ is object.__eq__ or (self._functions > 0 and not self._by_structure)
        hashed = id(value)
        if not identity:
            try:
                hashed = _core.static_hash(value)
            except Exception:  # it is none, and is compared by identity
                identity = True
        label = "function" if callable(value) and read(value, "__name__") is not None else "static"
        refs = _refs(value) if identity else _refs(kind) if kind.__module__ != "builtins" else ()
        return Part(("object", id(kind), hashed), label, self._repr(value), refs)

    def _repr(self, value: Any) -> str:
        kind = type(value)
        if kind in (str, bytes) and len(value) > _MAX_TEXT:
            value = value[:_MAX_TEXT]
        trusted = kind in _ATOMS or kind.__module__.split(".")[0] in ("builtins", "numpy", "jax", "jaxlib", "pathlib")
        if issubclass(kind, (tuple, list, dict, set, frozenset)):
            if not self._verbose or len(value) > _MAX_ITEMS:
                return f"of {len(value)}"
        elif not trusted and not self._verbose:
            return f"<{_name(kind)} at {id(value):#x}>"
        if callable(value) and isinstance(read(value, "__name__"), str):
            return f"{read(value, '__module__') or kind.__module__}.{value.__name__}"
        try:
            return _cut(repr(value))
        except Exception as error:  # of the user's __repr__
            return f"<{_name(kind)} whose repr raises {type(error).__name__}>"
