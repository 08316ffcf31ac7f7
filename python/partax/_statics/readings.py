"""Writes down all that the code of a callable can read, as checks that C++ makes of a callable made anew."""

import abc
import collections
import functools
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._compat.jax_private import concrete_array_type
from partax._statics.asked_parts import ASKED_PARTS
from partax._statics.bytecode import ABOUT_CLASS, global_names, leads_outside, written_cells
from partax._statics.constants import COMPARING, PLAIN, compares_as, is_constant, is_immutable, is_plain_member
from partax._statics.libraries import is_installed, is_of_installed_module, is_of_library, reads_outside
from partax._statics.reading_places import attribute, followed, place
from partax._statics.type_traits import Facts, facts
from partax._statics.user_objects import read

# A callable that reads more than this is not proven.
_MOST = 20_000
# What is expected of a value, and what is read next of it: csrc/statics/readings.h has these by number.
_ANYTHING, _THERE, _NEW, _MET, _ABSENT, _EQUAL, _OBJECT, _CODE, _ADDRESS = range(9)
_NONE, _TYPE, _ITEMS, STATE, _FUNCTION, _CLASS, _ASKED = range(7)
_NOTHING: Any = object()  # stands for a part that is not there

# Methods of classes that are written in C, and attributes of such.
_DESCRIPTORS = {
    *map(id, (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)),
    *map(id, (types.GetSetDescriptorType, types.MemberDescriptorType)),
    id(type(vars(Facts)["enum"])),  # of named tuples,
}
_CONTAINERS = (tuple, list, dict, set, frozenset, int, bytearray, float, complex, str, bytes)
_HEAP_TYPE = 1 << 9
# Past the attributes that a metaclass makes up.
_flags_of: Callable[[type], int] = type.__dict__["__flags__"].__get__
_entries_of: Callable[[type], Any] = type.__dict__["__dict__"].__get__


class _UnprovenError(Exception):
    """Ends the walk at what nobody can prove unchanged."""


def written_down(callable: Any, bare: bool) -> tuple[tuple[Any, ...], Callable[[int], str], bool, str]:
    """Writes down what the code of a callable can read now. Called by C++ when the callable is first traced.

    Args:
      callable: what is to be traced.
      bare: without its defaults, which are arguments of each call.

    Returns:
      The checks, what each is of in words, whether arrays are among it, and what is not proven or an empty string.
    """
    walk = _Walk(bare)
    unproven = walk.all(callable)
    return () if unproven else tuple(walk.checks), functools.partial(place, walk.places), walk.holds_arrays, unproven


class _Walk:
    """Reads on from a callable until all is written down: depth first, each object where it is met first.

    Attributes:
      checks: for each value what is expected of it, with an object; what is read next, with an argument; and how much.
      places: of each value what it is a part of, by number, and as which part.
      holds_arrays: whether arrays are among the values.
    """

    def __init__(self, bare: bool) -> None:
        self.checks: list[tuple[int, Any, int, Any, int]] = []
        self.places: list[tuple[int, str | int]] = []
        self.holds_arrays = False
        self._bare = bare
        self._met: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no id in `_met` is used again
        self._codes: list[types.CodeType] = []  # of the user's functions
        self._modules: list[tuple[types.ModuleType, int]] = []  # that were met as values, and at which check
        # Functions, and not methods of this walk: in a cycle it would keep what it has read.
        self._next: list[tuple[Callable[[_Walk, Any], None], Any, int, str | int]] = []

    def all(self, callable: Any) -> str:
        """Walks all; returns what is not proven."""
        self._next.append((_Walk._value, callable, -1, ""))
        try:
            while self._next:
                note, it, whole, segment = self._next.pop()
                self.places.append((whole, segment))
                self._kept.append(it)
                note(self, it)
                if len(self.checks) > _MOST:
                    raise _UnprovenError
            for module, at in self._modules:
                if any(leads_outside(module, code) for code in self._codes):
                    return place(self.places, at)
        except MemoryError:
            raise
        except Exception:
            return place(self.places, len(self.places) - 1) or "it"
        return ""

    # ---- How a check is written down.

    def _check(self, expected: int, known: Any = None) -> None:
        self.checks.append((expected, known, _NONE, None, 0))

    def _open(self, it: Any, expected: int, parts: int, argument: Any = None) -> tuple[Any, ...]:
        """A check of a value of which more is read; returns the parts."""
        found = _core.parts_of(it, parts, argument, _NOTHING)
        known = None
        if expected in (_NEW, _OBJECT):
            self._met[id(it)] = len(self.checks)
            known = weakref.ref(it) if expected == _OBJECT else None
        self.checks.append((expected, it if expected == _EQUAL else known, parts, argument, len(found)))
        return found

    def _read(self, parts: Iterable[Any], segments: Iterable[str | int]) -> None:
        steps = [(_Walk._value, *part) for part in zip(parts, segments, strict=True)]
        self._read_by(steps)

    def _read_by(self, steps: list[tuple[Callable[["_Walk", Any], None], Any, str | int]]) -> None:
        whole = len(self.checks) - 1
        self._next += [(note, part, whole, segment) for note, part, segment in reversed(steps)]

    # ---- Values by what they are.

    def _value(self, it: Any) -> None:
        kind = id(type(it))
        if it is _NOTHING:
            self._check(_ABSENT)
        elif kind in PLAIN:
            self._constant(it)
        elif kind in _DESCRIPTORS:
            self._check(_ADDRESS, id(it))
        elif id(it) in self._met:
            self._check(_MET, self._met[id(it)])
        else:
            _BY_TYPE.get(kind, _Walk._other)(self, it)

    def _constant(self, it: Any) -> None:
        """Of these it makes no difference whether two are one object."""
        self._check(_EQUAL, it)

    def _object(self, it: Any) -> None:
        self._met[id(it)] = len(self.checks)
        self._check(_OBJECT, weakref.ref(it))

    def _anything(self, it: Any) -> None:
        self._check(_ANYTHING)

    def _unproven(self, it: Any) -> None:
        raise _UnprovenError

    def _builtin_function(self, it: Any) -> None:
        """What C functions hold is out of reach, but for modules and classes that they are of."""
        owner = type(it.__self__)
        if not issubclass(owner, (types.NoneType, types.ModuleType, type)) or reads_outside(it):
            raise _UnprovenError
        self._constant(it)

    def _tuple(self, it: Any) -> None:
        found = self._open(it, _THERE, _ITEMS)
        self._read(found, (".__class__", *range(len(it))))

    def _items(self, it: Any) -> None:
        found = self._open(it, _NEW, _ITEMS)
        self._read(found, (".__class__", *range(len(found) - 1)))

    def _dict(self, it: Any) -> None:
        found = self._open(it, _NEW, _ITEMS)
        keys = [f"[{key!r}]" if id(type(key)) in PLAIN else f"[<{type(key).__name__}>]" for key in found[1::2]]
        self._read(found, (".__class__", *(segment for key in keys for segment in (key, key))))

    def _frozenset(self, it: Any) -> None:
        if not is_immutable(it):  # a set has no order by which it could be walked
            raise _UnprovenError
        self._constant(it)

    def _method(self, it: Any) -> None:
        self._read(self._open(it, _NEW, _ITEMS), (".__class__", ".__func__", ".__self__"))

    def _asked(self, it: Any) -> None:
        ask, segments = ASKED_PARTS[id(type(it))]
        found = self._open(it, _NEW, _ASKED, ask)
        notes = [_Walk._options if segment == ".<options>" else _Walk._value for segment in segments]
        self._read_by(list(zip((_Walk._value, *notes), found, (".__class__", *segments), strict=True)))

    def _options(self, it: Any) -> None:
        """A tuple that most often has nothing but constants: one check of all."""
        return self._constant(it) if is_constant(it) else self._value(it)

    def _other(self, it: Any) -> None:
        cls = type(it)
        if issubclass(cls, type):
            return self._class(it)
        if issubclass(cls, types.ModuleType):
            self._modules.append((it, len(self.checks)))
            return self._object(it) if is_installed(it.__name__) else self._unproven(it)
        known = facts(cls)
        if callable(it) and known.installed and is_of_library(it):
            return self._constant(it)
        if id(cls) in ASKED_PARTS:
            return self._asked(it)
        if issubclass(cls, functools.partial) and compares_as(cls, functools.partial):
            return self._partial(it)
        if issubclass(cls, (np.generic, jax.tree_util.PyTreeDef)):
            return self._constant(it)
        if issubclass(cls, Tracer):
            raise _UnprovenError
        if issubclass(cls, _ARRAYS) or (cls.__module__.startswith("jax") and isinstance(it, jax.Array)):
            self.holds_arrays = True
            return self._object(it)
        if known.enum:
            return self._member(it)
        if known.constant:
            return self._constant(it)
        return self._instance(it) if known.in_reach else self._unproven(it)

    # ---- Callables.

    def _function(self, it: Any) -> None:
        code: types.CodeType = it.__code__
        library = is_of_installed_module(it.__globals__)
        if library and reads_outside(it):
            raise _UnprovenError
        if library and is_of_library(it):
            return self._constant(it)
        names, unknown = (None, None) if library else global_names(code)
        self._codes += [] if library else [code]
        is_root = not self.checks
        found = iter(self._open(it, _NEW, _FUNCTION, names))
        steps: list[Any] = [(_Walk._code, next(found), "")]
        for name, written in zip(code.co_freevars, written_cells(code), strict=True):
            cell = next(found)
            only_adds = written is None and issubclass(type(cell), (list, set, dict, bytearray))
            if not library and (written or only_adds):  # what it writes is its own
                steps.append((_Walk._unproven, None, f"closure cell '{name}', to which it writes"))
            else:
                steps.append((_Walk._value, cell, f"closure cell '{name}'"))
        defaults, attributes = (next(found), next(found)), next(found)
        # One with attributes may be called by another signature, which knows no defaults.
        is_bare = self._bare and is_root and attributes is _NOTHING
        steps += [(_Walk._anything if is_bare else _Walk._value, default, "a default") for default in defaults]
        steps.append((_Walk._value if attributes is _NOTHING else _Walk._attributes, attributes, ""))
        steps += [(_Walk._constant, next(found), ""), (_Walk._constant, next(found), "")]
        for chain in names or ():
            steps.append((_Walk._value, next(found), f"global '{followed(chain, it.__globals__, it.__builtins__)}'"))
        steps += [(_Walk._constant, it.__globals__, "")] if library else []
        if unknown:
            steps.append((_Walk._unproven, None, unknown))
        return self._read_by(steps)

    def _code(self, it: Any) -> None:
        self._check(_CODE, it)

    def _attributes(self, it: Any) -> None:
        """The dictionary of a function, which nobody else has."""
        cls, *found = self._open(it, _THERE, _ITEMS)
        texts = [f"attribute '{attribute(name)[1:]}'" for name in found[::2]]
        self._read((cls, *found), (".__class__", *(segment for text in texts for segment in (".__dict__", text))))

    def _partial(self, it: Any) -> None:
        cls, content, *state = self._open(it, _NEW, STATE)
        segments = [segment for name in state[::2] for segment in (".__dict__", attribute(name))]
        steps: list[Any] = [(_Walk._object, cls, ".__class__"), (_Walk._parts_of_partial, content, "")]
        self._read_by(steps + [(_Walk._value, *part) for part in zip(state, segments, strict=True)])

    def _parts_of_partial(self, it: Any) -> None:
        self._read(self._open(it, _THERE, _ITEMS), ("", ".func", ".args", ".keywords"))

    # ---- Classes and instances.

    def _class(self, it: Any) -> None:
        if not _flags_of(it) & _HEAP_TYPE:  # it is built in
            return self._constant(it)
        if is_installed(_entries_of(it).get("__module__")):
            return self._object(it)
        found = self._open(it, _OBJECT, _CLASS)
        entries = 2 * len(_entries_of(it))
        is_enum = type(it) is not type and read(it, "_member_map_", _NOTHING) is not _NOTHING
        steps: list[Any] = [(_Walk._value, found[0], ".__class__")]
        steps += [(_Walk._constant, name, ".__name__") for name in found[1:3]]
        steps += [(_Walk._value, base, ".__mro__") for base in found[3:-entries]]
        for name, entry in zip(found[-entries::2], found[1 - entries :: 2], strict=True):
            if type(name) is not str:
                raise _UnprovenError
            is_about_enum = is_enum and type(entry) is not types.FunctionType
            if name == "_abc_impl":
                steps += [(_Walk._anything, None, ""), (_Walk._registrations, entry, ".register")]
            elif name in ABOUT_CLASS or (is_about_enum and (type(entry) is not it or is_plain_member(entry))):
                steps += [(_Walk._anything, None, ""), (_Walk._anything, None, "")]
            else:
                steps += [(_Walk._constant, name, ""), (_Walk._value, entry, f".{name}")]
        return self._read_by(steps)

    def _registrations(self, it: Any) -> None:
        """What an abstract class takes for its subclasses: out of reach, but the count of all registrations is not."""
        self._read(self._open(it, _THERE, _ASKED, _REGISTRATIONS), ("", ""))

    def _member(self, it: Any) -> None:
        """A member of an enumeration never changes, but what it has for its value and beside it may.

        One that is an integer has no weak references: it is known by its class and its name.
        """
        cls: Any = type(it)
        known = _OBJECT if cls.__weakrefoffset__ else _THERE
        if known == _OBJECT and is_plain_member(it):
            return self._read(self._open(it, known, _TYPE), (".__class__",))
        found = self._open(it, known, STATE)
        names = (segment for name in found[2::2] for segment in (".__dict__", attribute(name)))
        return self._read(found, (".__class__", ".<content>", *names))

    def _instance(self, it: Any) -> None:
        """By identity too, unless it is a value: its class says that others may be equal, or it is a container."""
        cls: Any = type(it)
        base = next((base for base in _CONTAINERS if issubclass(cls, base)), None)
        is_value = cls is types.SimpleNamespace or (base is not None and compares_as(cls, base))
        is_value = is_value or (cls.__hash__ is not None and not compares_as(cls, object, COMPARING))
        # One without weak references can be a mark, as a class without slots gives many.
        found = self._open(it, _NEW if is_value else _OBJECT if cls.__weakrefoffset__ else _EQUAL, STATE)
        if not is_value and not cls.__weakrefoffset__ and len(found) > 2:
            raise _UnprovenError
        names = (segment for name in found[2::2] for segment in (".__dict__", attribute(name)))
        self._read(found, (".__class__", ".<content>", *names))


_ARRAYS = (*filter(None, (concrete_array_type(),)), jax.Array)
_REGISTRATIONS = (type(vars(abc.ABC)["_abc_impl"]), lambda _: (abc.get_cache_token(),))
_BY_TYPE: dict[int, Callable[[_Walk, Any], None]] = {
    id(tuple): _Walk._tuple,
    id(list): _Walk._items,
    id(dict): _Walk._dict,
    id(collections.OrderedDict): _Walk._dict,
    id(collections.defaultdict): _Walk._items,
    id(frozenset): _Walk._frozenset,
    id(types.BuiltinFunctionType): _Walk._builtin_function,
    id(types.FunctionType): _Walk._function,
    id(types.MethodType): _Walk._method,
    id(type): _Walk._class,
}
