"""Walks over all that a trace can read, and writes it down as checks that C++ makes of what was made anew."""

import collections
import enum
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._families.equinox import is_module
from partax._families.settings import asked_of
from partax._guards.bytecode import BY_CODE, Named, leads_anywhere, named_by, unseen_cells
from partax._guards.checkers import SEGMENTS, is_checker, parts_of_checker
from partax._guards.constants import DESCRIPTORS, PLAIN, SENTINELS, compares_as, is_constant, is_plain_scalar
from partax._guards.entries import ABOUT_CLASS, OF_ENUM
from partax._guards.library_attributes import Pair, name_of, others_attributes, value_of
from partax._guards.places import attribute, followed, place
from partax._guards.pure import KEEP_RULES, is_listed_module, is_pure, is_pure_code, package_of
from partax._guards.shown import TOLD_BY, bare, how_shown
from partax._guards.type_traits import facts
from partax._guards.user_objects import entries_of, is_written_in_c
from partax._jax.nodes import registered_nodes
from partax._jax.private import concrete_array_type
from partax._jax.settings import SETTINGS, Settings

# More than this is not proven.
_MOST = 20_000
# What is expected of a value, and what is read next of it: csrc/statics/guards.h has these by number.
_ANYTHING, _THERE, _NEW, MET, _ABSENT, EQUAL, OBJECT, CODE, ADDRESS = range(9)
_NONE, _TYPE, ITEMS, STATE, FUNCTION, _CLASS, _ASKED = range(7)
Check = tuple[int, Any, int, Any, int]
"""What is expected of a value, with an object; what is read next of it, with an argument; and how much that is."""

_NOTHING: Any = object()  # stands for a part that is not there

_ARRAYS = (*filter(None, (concrete_array_type(),)), jax.Array)
# Of jax: found anew by what they hold, in their attributes.
_STATEFUL = (functools.partial, jax.custom_jvp, jax.custom_vjp)
_HASH_OF_DATACLASS = "__create_fn__.<locals>.__hash__"


_NOTHING_NAMED = Named((), frozenset(), False, frozenset(), None)


class _UnprovenError(Exception):
    """Ends the walk at what nobody can prove unchanged."""


class Walk:
    """Reads on from the roots until all is written down: depth first, each object where it is met first."""

    def __init__(self) -> None:
        self.checks: list[Check] = []  # of each value
        self.places: list[tuple[int, str | int]] = []  # what each is a part of, by number, and as which part
        self.kept: list[Any] = []  # the values, so that no id in `_met` is used again
        self.holds_arrays = False
        self.of_same_objects = ""  # what is not proven of functions among the roots
        self.of_libraries: list[Pair] = []  # what the code can read of libraries, but others may set
        self._met: dict[int, int] = {}
        self._names: set[str] = set()  # of attributes, in the code of the user's functions
        self._can_miss = False  # whether it can do without one
        self._imported: dict[str, Any] = {}  # modules, by the names that code has
        # Functions, and not methods of this walk: in a cycle it would keep what it has read.
        self._next: list[tuple[Callable[[Walk, Any], None], Any, int, str | int]] = []

    def all(self, roots: tuple[Any, ...]) -> str:
        """Walks all; returns what is not proven."""
        for root in roots:
            before = len(self.checks), dict(self._met), set(self._names), dict(self._imported)
            unproven = self._root(root)
            if unproven and type(root) is not types.FunctionType:
                return unproven
            if unproven:  # it is the same as long as it is the same object
                start, self._met, self._names, self._imported = before
                del self.checks[start:], self.places[start:], self.kept[start:]
                self._next.clear()
                self.places.append((-1, ""))
                self.kept.append(root)
                self._object(root)
                self.of_same_objects = unproven
        values = [*self._imported.values(), *self.kept]
        self.of_libraries, unproven = others_attributes(values, self._names, can_miss=self._can_miss)
        self.of_libraries += [(sys.modules, name) for name in sorted(self._imported)]
        return unproven

    def settings(self) -> str:
        """Walks the settings of the libraries of which something was met; returns what is not proven."""
        return self._root(SETTINGS)

    def _root(self, root: Any) -> str:
        name = f"class '{root.__name__}'" if issubclass(type(root), type) else ""
        self._next.append((Walk._value, root, -1, name))
        try:
            while self._next:
                note, it, whole, segment = self._next.pop()
                self.places.append((whole, segment))
                self.kept.append(it)
                note(self, it)
                if len(self.checks) > _MOST:
                    raise _UnprovenError
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
        if len(found) > _MOST:
            raise _UnprovenError
        if expected in (_NEW, OBJECT):
            self._met[id(it)] = len(self.checks)
        known = weakref.ref(it) if expected == OBJECT else it if expected == EQUAL else None
        self.checks.append((expected, known, parts, argument, len(found)))
        return found

    def _read(self, cls: Any, parts: Iterable[Any], segments: Iterable[str | int]) -> None:
        """Parts of an instance of a class that is Python's own, and known by identity."""
        steps = [(Walk._value, *part) for part in zip(parts, segments, strict=True)]
        self._read_by([(Walk._constant, cls, ".__class__"), *steps])

    def _read_by(self, steps: list[tuple[Callable[["Walk", Any], None], Any, str | int]]) -> None:
        whole = len(self.checks) - 1
        self._next += [(note, part, whole, segment) for note, part, segment in reversed(steps)]

    # ---- Values by what they are.

    def _value(self, it: Any) -> None:
        kind = id(type(it))
        if it is _NOTHING:
            self._check(_ABSENT)
        elif kind in PLAIN:
            self._constant(it)
        elif kind in DESCRIPTORS:
            (self._unproven if leads_anywhere(getattr(it, "__name__", "")) else self._address)(it)
        elif id(it) in self._met:
            self._check(MET, self._met[id(it)])
        else:
            _BY_TYPE.get(kind, Walk._other)(self, it)

    def _constant(self, it: Any) -> None:
        """Of these it makes no difference whether two are one object."""
        self._check(EQUAL, it)

    def _object(self, it: Any) -> None:
        self._met[id(it)] = len(self.checks)
        self._check(OBJECT, weakref.ref(it))

    def _anything(self, it: Any) -> None:
        self._check(_ANYTHING)

    def _unproven(self, it: Any) -> None:
        raise _UnprovenError

    def _builtin_function(self, it: Any) -> None:
        if not is_pure(it):
            raise _UnprovenError
        self._constant(it)

    def _items(self, it: Any) -> None:
        cls, *found = self._open(it, _THERE if type(it) in (tuple, frozenset) else _NEW, ITEMS)
        segments: Iterable[str | int] = range(len(found))
        if cls is types.MethodType:
            segments = ".__func__", ".__self__"
        elif cls is dict:
            keys = [f"[{key!r}]" if id(type(key)) in PLAIN else f"[<{type(key).__name__}>]" for key in found[::2]]
            segments = (segment for key in keys for segment in (key, key))
        self._read(cls, found, segments)

    def _module(self, it: Any) -> None:
        """One that code has as a value, and not only by the names that it reads of it at once."""
        if not is_listed_module(it):
            raise _UnprovenError
        self._object(it)

    def _settings(self, it: Any) -> None:
        """Read after all else: those of a library count where something of it was met."""
        printing = {"numpy"} if self.holds_arrays else set[str]()  # by which jax's arrays are printed
        ask, names = asked_of(printing.union(map(package_of, self.kept)))
        pairs = self.of_libraries
        names = *names, *(name_of(*pair) for pair in pairs)

        def ask_both(settings: Any) -> tuple[Any, ...]:
            return *ask(settings), *(value_of(*pair) for pair in pairs)

        found = self._open(it, _THERE, _ASKED, (Settings, ask_both if pairs else ask))
        steps = [(Walk._options, value, f"setting '{name}'") for name, value in zip(names, found[1:], strict=True)]
        self._read_by([(Walk._anything, None, ""), *steps])

    def _asked(self, it: Any, ask: Callable[[Any], Any], segments: tuple[str, ...]) -> None:
        cls, *found = self._open(it, _NEW, _ASKED, (type(it), ask))
        segments = segments or ("",) * len(found)
        notes = [Walk._options if segment == ".<options>" else Walk._value for segment in segments]
        steps = list(zip(notes, found, segments, strict=True))
        self._read_by([(Walk._object, cls, ".__class__"), *steps])

    def _options(self, it: Any) -> None:
        """A tuple that most often has nothing but constants: one check of all."""
        return self._constant(it) if is_constant(it) else self._value(it)

    def _other(self, it: Any) -> None:
        cls = type(it)
        if cls is object or id(it) in SENTINELS:
            return self._constant(it)
        asked = how_shown(cls)
        if asked is not None and not is_pure(it):
            return self._asked(it, *asked)
        if issubclass(cls, type):
            return self._class(it)
        if issubclass(cls, types.ModuleType):
            return self._module(it)
        if callable(it) and is_pure(it):
            return self._constant(it)
        if issubclass(cls, Tracer):
            raise _UnprovenError
        if issubclass(cls, _ARRAYS):
            self.holds_arrays = True
            return self._bare(it, OBJECT)
        known = facts(cls)
        if known.constant and cls.__dictoffset__ > 0:  # those of Python refuse attributes
            return self._bare(it, EQUAL)
        if known.constant or (issubclass(cls, np.generic) and is_plain_scalar(cls)):
            return self._constant(it)
        if known.enum:
            return self._member(it)
        if any(cls is stateful for stateful in _STATEFUL) or (
            issubclass(cls, functools.partial) and compares_as(cls, functools.partial)
        ):
            return self._instance(it)
        return self._instance(it) if known.frozen else self._unproven(it)

    def _bare(self, it: Any, expected: int) -> None:
        """Of an object of jax's, on which somebody may set an attribute: then it is not proven."""
        self._read_by([(Walk._anything, self._open(it, expected, _ASKED, (type(it), bare))[0], "")])

    # ---- Callables.

    def _function(self, it: Any) -> None:
        code: types.CodeType = it.__code__
        if is_pure(it):
            # What makes checked functions reads annotations; those that it has made are looked at below.
            return (self._unproven if it.__module__ == "jaxtyping._decorator" else self._constant)(it)
        is_listed = is_pure_code(it) or code.co_qualname == _HASH_OF_DATACLASS
        if is_checker(it, is_listed):
            return self._asked(it, parts_of_checker, SEGMENTS)
        if type(it.__globals__) is not dict or type(it.__builtins__) is not dict:
            raise _UnprovenError
        named = _NOTHING_NAMED if is_listed else named_by(code)
        self._names |= named.attributes
        self._can_miss = self._can_miss or named.can_miss
        self._imported |= {name: sys.modules[name] for name in named.imports}
        unseen = () if is_listed else unseen_cells(it)
        expected = OBJECT if any(unseen) else _NEW
        found = iter(self._open(it, expected, FUNCTION, None if is_listed else named.globals))
        steps: list[Any] = [(Walk._code, next(found), "")]
        for i, name in enumerate(code.co_freevars):
            is_unseen = i < len(unseen) and unseen[i]
            note = Walk._by_type if is_unseen else Walk._of_library if is_listed else Walk._value
            steps.append((note, next(found), f"closure cell '{name}'"))
        steps += [(Walk._value, next(found), "a default") for _ in range(2)]
        attributes = next(found)
        steps.append((Walk._value if attributes is _NOTHING else Walk._attributes, attributes, ""))
        steps += [(Walk._constant, next(found), ""), (Walk._constant, next(found), "")]
        for chain, value in zip(named.globals, found, strict=False):
            note = Walk._constant if BY_CODE.get(chain[0]) is value else Walk._value
            steps.append((note, value, f"global '{followed(chain, it.__globals__, it.__builtins__)}'"))
        steps += [(Walk._address, it.__globals__, "")] if is_listed else []
        if named.unproven:
            steps.append((Walk._unproven, None, named.unproven))
        return self._read_by(steps)

    def _of_library(self, it: Any) -> None:
        """What a library's function holds: by beartype that of a checked dataclass asks for the fields alone."""
        is_checker = type(it) is types.FunctionType and package_of(it) == "beartype"
        (self._constant if is_checker else self._value)(it)

    def _by_type(self, it: Any) -> None:
        """What its function counts or logs, but cannot see: it is that very function, or traced anew."""
        self._read_by([(Walk._constant, self._open(it, _THERE, _TYPE)[0], ".__class__")])

    def _code(self, it: Any) -> None:
        self._check(CODE, it)

    def _address(self, it: Any) -> None:
        self._check(ADDRESS, id(it))

    def _attributes(self, it: Any) -> None:
        cls, *found = self._open(it, _THERE, ITEMS)
        texts = [f"attribute '{attribute(name)[1:]}'" for name in found[::2]]
        self._read(cls, found, (segment for text in texts for segment in (".__dict__", text)))

    # ---- Classes and instances.

    def _class(self, it: Any) -> None:
        if is_pure(it) or id(it) in SENTINELS:
            return self._constant(it) if is_written_in_c(it) else self._object(it)
        if is_written_in_c(it) or registered_nodes() is None:  # or a node that nobody knows of
            raise _UnprovenError
        found = self._open(it, OBJECT, _CLASS)
        entries = 2 * len(entries_of(it))
        bases = found[3 : -entries - 1]
        if not KEEP_RULES.isdisjoint(map(package_of, bases)):
            raise _UnprovenError
        is_flag = issubclass(it, enum.Flag)
        of_enum = OF_ENUM if issubclass(type(it), enum.EnumType) else frozenset[str]()
        steps: list[Any] = [(Walk._value, found[0], ".__class__")]
        steps += [(Walk._constant, name, ".__name__") for name in found[1:3]]
        steps += [(Walk._value, base, ".__mro__") for base in bases]
        self._can_miss = self._can_miss or "__getattr__" in found[-entries::2]
        # What Equinox registers its modules with is its own.
        steps.append((Walk._anything if is_module(it) else Walk._value, found[-entries - 1], ".<pytree>"))
        for name, entry in zip(found[-entries::2], found[1 - entries :: 2], strict=True):
            if type(name) is not str:
                raise _UnprovenError
            if name in ABOUT_CLASS or name in of_enum:
                steps += [(Walk._anything, None, ""), (Walk._anything, None, "")]
            else:
                # That of flags grows as they are joined.
                tell = TOLD_BY.get(name) if is_flag or name != "_value2member_map_" else None
                note = Walk._value if tell is None else functools.partial(Walk._asked, ask=tell, segments=())
                steps += [(Walk._constant, name, ""), (note, entry, f".{name}")]
        return self._read_by(steps)

    def _member(self, it: Any) -> None:
        """A member of an enumeration never changes, but what it has for its value and beside it may.

        One that is an integer has no weak references: it is known by its class and its name.
        """
        return self._instance(it, OBJECT if type(it).__weakrefoffset__ else _THERE)

    def _instance(self, it: Any, expected: int = _NEW) -> None:
        cls, *found = self._open(it, expected, STATE)
        names = (segment for name in found[1::2] for segment in (".__dict__", attribute(name)))
        steps = [(Walk._value, *part) for part in zip(found, ("", *names), strict=True)]
        self._read_by([(Walk._value, cls, ".__class__"), *steps])


_BY_TYPE: dict[int, Callable[[Walk, Any], None]] = {
    **dict.fromkeys(map(id, (tuple, list, dict, set, frozenset, bytearray, types.MethodType)), Walk._items),
    id(collections.defaultdict): Walk._items,
    id(collections.OrderedDict): Walk._instance,
    id(types.BuiltinFunctionType): Walk._builtin_function,
    id(types.FunctionType): Walk._function,
    id(type): Walk._class,
    id(type(SETTINGS)): Walk._settings,
}


def written_down(roots: tuple[Any, ...]) -> tuple[tuple[Check, ...], Callable[[int], str], bool, str, str]:
    """Writes down what can be read of these values now. Called by C++ when a program is to be traced.

    Gives the checks, what each is of in words, whether arrays are among it, what is not proven or an empty string, and
    what is not proven of functions among the roots, which are the same only as the same objects.
    """
    walk = Walk()
    unproven = walk.all(roots) or walk.settings()
    checks = () if unproven else tuple(walk.checks)
    return checks, functools.partial(place, walk.places), walk.holds_arrays, unproven, walk.of_same_objects
