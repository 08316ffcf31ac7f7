"""Walks over all that a trace can read, and writes it down as checks that C++ makes of what was made anew."""

import collections
import copyreg
import enum
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.core import Tracer

from partax import _core
from partax._families.equinox import is_module
from partax._families.settings import asked_of
from partax._guards.bytecode import BY_CODE, Named, leads_anywhere, named_by, unseen_cells
from partax._guards.checkers import is_checker, parts_of_checker
from partax._guards.constants import ABOUT_CLASS, DESCRIPTORS, OF_ENUM, PLAIN, SENTINELS, compares_as
from partax._guards.library_attributes import (
    Pair,
    entries_of_library,
    find_submodules,
    leads_to_others,
    name_of,
    others_attributes,
    value_of,
)
from partax._guards.places import attribute, followed, place
from partax._guards.pure import KEEP_RULES, is_listed_module, is_pure, is_pure_code, package_of
from partax._guards.shown import TOLD_BY, bare, bits_of, how_shown, is_linen_module, is_nan, nothing, of_wrapper
from partax._guards.type_traits import Facts, facts
from partax._guards.user_objects import entries_of, is_written_in_c, mro_of
from partax._jax.nodes import registered_nodes
from partax._jax.private import SETTINGS, Settings, concrete_array_type

# More than this is not proven.
_MOST = 20_000
# What is expected of a value, and what is read next of it: csrc/statics/guards.h has these by number.
_ANYTHING, _NEW, MET, _ABSENT, EQUAL, OBJECT, CODE, ADDRESS = range(8)
_NONE, ITEMS, STATE, FUNCTION, CLASS, _ASKED, VERSION = range(7)
Check = tuple[int, Any, int, Any, int]
"""What is expected of a value, with an object; what is read next of it, with an argument; and how much that is."""

_NOTHING: Any = object()  # stands for a part that is not there

_ARRAYS = (*filter(None, (concrete_array_type(),)), jax.Array)
_JIT = type(jax.jit(len))
_HASH_OF_DATACLASS = "__create_fn__.<locals>.__hash__"
_versions_of_libraries = set[int]()  # of their classes, where all entries are theirs
_NOTHING_NAMED = Named((), frozenset(), False, frozenset(), None)


class _UnprovenError(Exception):
    """Ends the walk at what nobody can prove unchanged."""


_Note = Callable[["Walk", Any], None] | int
"""What writes a value down: a method of a walk, or what is expected of the value where that is all."""


class Walk:
    """Reads on from the roots until all is written down: depth first, each object where it is met first."""

    def __init__(self) -> None:
        self.checks: list[Check] = []  # of each value
        self.places: list[tuple[int, str | int]] = []  # what each is a part of, by number, and as which part
        self.kept: list[Any] = []  # the values, so that no id in `_met` is used again
        self.holds_arrays = self.has_function = False
        self.of_same_objects = ""  # what is not proven of functions among the roots
        self.of_libraries: list[Pair] = []  # what the code can read of libraries, but others may set
        self._met: dict[int, int] = {}
        # Functions, and not methods of this walk: in a cycle it would keep what it has read.
        self._next: list[tuple[_Note, Any, int, str | int]] = []

    def all(self, roots: tuple[Any, ...], function: tuple[Any, ...] = ()) -> str:
        """Walks all; returns what is not proven. Where these are arguments of a function, what it holds is walked too,
        and left out again if no argument can be an object that it may hold: then `has_function` is false.
        """
        if unproven := self._each(roots):
            return unproven
        count, holds_arrays, of_same_objects = len(self.checks), self.holds_arrays, self.of_same_objects
        of_function = self._each(function)
        unproven = self._walk_libraries()
        self.has_function = bool(function) and any(check[0] == _NEW for check in self.checks[:count])
        if not self.has_function:
            self._cut(count)
            self.holds_arrays, self.of_same_objects = holds_arrays, of_same_objects
        return of_function if self.has_function and of_function else unproven

    def _each(self, roots: tuple[Any, ...]) -> str:
        for root in roots:
            start = len(self.checks)
            if not (unproven := self.root(root)):
                continue
            self._cut(start)
            if type(root) is not types.FunctionType:
                return unproven
            self.root(root, OBJECT)  # it is the same as long as it is the same object
            self.of_same_objects = unproven
        return ""

    def _cut(self, start: int) -> None:
        """Forgets what was read from a check on."""
        del self.checks[start:], self.places[start:], self.kept[start:]
        self._met = {place: at for place, at in self._met.items() if at < start}
        self._next.clear()

    def _walk_libraries(self) -> str:
        met = list(zip(self.kept, self.checks, strict=True))
        named = [named_by(it.__code__) for it, check in met if check[2] == FUNCTION and check[3] is not None]
        names = frozenset[str]().union(*(it.attributes for it in named))
        modules = sorted(frozenset[str]().union(*(it.imports for it in named)))
        can_miss = any(it.can_miss for it in named)
        can_miss = can_miss or any(check[2] == CLASS and "__getattr__" in entries_of(it) for it, check in met)
        values = [*(sys.modules[name] for name in modules), *filter(leads_to_others, self.kept)]
        self.of_libraries, unproven = others_attributes(values, names, can_miss=can_miss)
        self.of_libraries += [(sys.modules, name) for name in modules]
        return unproven

    def root(self, root: Any, note: _Note | None = None) -> str:
        name = f"class '{root.__name__}'" if issubclass(type(root), type) else ""
        self._next.append((Walk._value if note is None else note, root, -1, name))
        try:
            while self._next:
                note, it, whole, segment = self._next.pop()
                self.places.append((whole, segment))
                self.kept.append(it)
                if isinstance(note, int):
                    self._check(it, note)
                else:
                    note(self, it)
                if len(self.checks) > _MOST:
                    raise _UnprovenError
        except MemoryError:
            raise
        except Exception:
            return place(self.places, len(self.places) - 1) or "it"
        return ""

    # ---- How a check is written down.

    def _check(self, it: Any, expected: int, parts: int = _NONE, argument: Any = None) -> tuple[Any, ...]:
        """Writes down a check of a value; returns the parts of which more is read."""
        found = _core.parts_of(it, parts, argument, _NOTHING)
        if len(found) > _MOST:
            raise _UnprovenError
        known: Any = it if expected in (EQUAL, CODE) else id(it) if expected == ADDRESS else None
        if expected == MET:
            known = self._met[id(it)]
        elif expected in (_NEW, OBJECT):
            known = weakref.ref(it) if expected == OBJECT else None
            self._met[id(it)] = len(self.checks)
        self.checks.append((expected, known, parts, argument, len(found)))
        return found

    def _read(self, *steps: tuple[_Note, Any, str | int]) -> None:
        """Has the parts of the last value read next."""
        whole = len(self.checks) - 1
        self._next += [(note, part, whole, segment) for note, part, segment in reversed(steps)]

    # ---- Values by what they are.

    def _value(self, it: Any) -> None:
        kind = id(type(it))
        if it is _NOTHING:
            self._check(None, _ABSENT)
        elif kind in PLAIN and it == it:
            self._check(it, EQUAL)
        elif kind in DESCRIPTORS:
            if leads_anywhere(getattr(it, "__name__", "")):
                raise _UnprovenError
            self._check(it, EQUAL)
        elif id(it) in self._met:
            self._check(it, MET)
        else:
            _BY_TYPE.get(kind, Walk._other)(self, it)

    def _unproven(self, it: Any) -> None:
        raise _UnprovenError

    def _items(self, it: Any) -> None:
        if type(it) is tuple and _is_constant(it):
            self._check(it, EQUAL)
            return
        cls, *found = self._check(it, _ANYTHING if type(it) in (tuple, frozenset) else _NEW, ITEMS)
        segments: Iterable[str | int] = range(len(found))
        if cls is types.MethodType:
            segments = ".__func__", ".__self__"
        elif cls is dict:
            keys = [f"[{key!r}]" if id(type(key)) in PLAIN else f"[<{type(key).__name__}>]" for key in found[::2]]
            segments = (segment for key in keys for segment in (key, key))
        parts = [(Walk._value, *part) for part in zip(found, segments, strict=True)]
        self._read((EQUAL, cls, ".__class__"), *parts)

    def _settings(self, it: Any) -> None:
        """Read after all else: those of a library count where something of it was met."""
        met = {"numpy", *map(package_of, self.kept)}  # an array leads there without a name
        ask, names = asked_of(met)
        pairs = self.of_libraries
        names = *names, *(name_of(*pair) for pair in pairs)

        def ask_both(settings: Any) -> tuple[Any, ...]:
            return *ask(settings), *(value_of(*pair) for pair in pairs)

        cls, *found = self._check(it, _ANYTHING, _ASKED, (Settings, ask_both if pairs else ask))
        notes = (EQUAL if facts(type(value)).enum else Walk._value for value in found)
        segments = (f"setting '{name}'" for name in names)
        self._read((_ANYTHING, cls, ""), *zip(notes, found, segments, strict=True))

    def _asked(self, it: Any, ask: Callable[[Any], Any], expected: int = _NEW) -> None:
        if expected == _NEW and id(it) in self._met:
            self._check(it, MET)
            return
        cls, *found = self._check(it, expected, _ASKED, (type(it), ask))
        self._read((Walk._class_of, cls, ".__class__"), *((Walk._value, part, "") for part in found))

    def _other(self, it: Any) -> None:
        cls = type(it)
        if cls is object or id(it) in SENTINELS:
            self._check(it, EQUAL)
        elif (asked := how_shown(cls)) is not None and not is_pure(it):
            self._asked(it, asked)
        elif issubclass(cls, type):
            self._class(it)
        elif issubclass(cls, types.ModuleType) and is_listed_module(it):
            self._check(it, OBJECT)  # as a value, and not only by the names that are read of it at once
        elif callable(it) and is_pure(it):
            self._check(it, EQUAL)
        elif issubclass(cls, _ARRAYS) and not issubclass(cls, Tracer):
            self.holds_arrays = True
            self._asked(it, bare, OBJECT)
        else:
            self._of_class(it, facts(cls))

    def _of_class(self, it: Any, known: Facts) -> None:
        cls = type(it)
        if _is_constant(it):
            self._check(it, EQUAL)
        elif is_nan(it):
            self._asked(it, bits_of)
        elif known.constant:  # those of Python refuse attributes
            self._asked(it, bare if cls.__dictoffset__ > 0 else nothing, EQUAL)
        elif known.enum:
            # A member never changes, but what it has for its value and beside it may. One that is an integer has no
            # weak references: it is known by its class and its name.
            self._instance(it, OBJECT if cls.__weakrefoffset__ else _ANYTHING)
        elif (
            known.frozen
            or (known.in_reach and (is_pure(cls) or is_linen_module(cls)))
            or (issubclass(cls, functools.partial) and compares_as(cls, functools.partial))
        ):
            self._instance(it)
        else:
            raise _UnprovenError

    # ---- Callables.

    def _function(self, it: Any) -> None:
        if is_pure(it):
            if it.__module__ == "jaxtyping._decorator":  # it reads annotations; what it has made is looked at below
                raise _UnprovenError
            self._check(it, EQUAL)
            return
        is_listed = is_pure_code(it) or it.__code__.co_qualname == _HASH_OF_DATACLASS
        if is_checker(it, is_listed):
            self._asked(it, parts_of_checker)
            return
        named = _NOTHING_NAMED if is_listed else named_by(it.__code__)
        if type(it.__globals__) is not dict or type(it.__builtins__) is not dict or named.imports - sys.modules.keys():
            raise _UnprovenError
        find_submodules(named.globals, it.__globals__)
        unseen = unseen_cells(it)
        expected = OBJECT if any(unseen) else _NEW
        code, *held = self._check(it, expected, FUNCTION, None if is_listed else named.globals)
        steps: list[tuple[_Note, Any, str]] = [(CODE, code, "")]
        for name, is_unseen, value in zip(code.co_freevars, unseen, held, strict=False):
            # What its function counts or logs, but cannot see: it is that very function, or traced anew.
            note = Walk._counted if is_unseen else Walk._of_library if is_listed else Walk._value
            steps.append((note, value, f"closure cell '{name}'"))
        defaults, by_keyword, attributes, name, qualified, *found = held[len(unseen) :]
        steps += [(Walk._value, defaults, "a default"), (Walk._value, by_keyword, "a default")]
        copied = type(attributes) is dict and "_jit_info" in attributes and "__wrapped__" in attributes
        note = functools.partial(Walk._asked, ask=of_wrapper) if copied else Walk._value
        steps += [(note, attributes, ".__dict__"), (EQUAL, name, ""), (EQUAL, qualified, "")]
        if is_listed:
            steps.append((ADDRESS, found[0], ""))
        for chain, value in zip(named.globals, found, strict=False):
            note = EQUAL if BY_CODE.get(chain[0]) is value else Walk._value
            steps.append((note, value, f"global '{followed(chain, it.__globals__, it.__builtins__)}'"))
        if named.unproven:
            steps.append((Walk._unproven, None, named.unproven))
        self._read(*steps)

    def _counted(self, it: Any) -> None:
        """What nobody reads: of another type, it might refuse what is added."""
        self._asked(it, type, _ANYTHING)

    def _of_library(self, it: Any) -> None:
        """What a library's function holds: by beartype that of a checked dataclass asks for the fields alone."""
        if type(it) is types.FunctionType and package_of(it) == "beartype":
            self._check(it, EQUAL)
        else:
            self._value(it)

    # ---- Classes and instances.

    def _class(self, it: Any) -> None:
        if is_pure(it) or id(it) in SENTINELS:
            if is_written_in_c(it):
                self._check(it, EQUAL)
            else:
                self._version(it)
            return
        if is_written_in_c(it) or registered_nodes() is None:  # or a node that nobody knows of
            raise _UnprovenError
        metaclass, name, qualified, *rest = self._check(it, OBJECT, CLASS)
        count = len(mro_of(it)) - 1
        bases, registered, entries = rest[:count], rest[count], rest[count + 1 :]
        if not KEEP_RULES.isdisjoint(map(package_of, bases)):
            raise _UnprovenError
        steps: list[tuple[_Note, Any, str]] = [(Walk._value, metaclass, ".__class__")]
        steps += [(EQUAL, name, ".__name__"), (EQUAL, qualified, ".__name__")]
        steps += [(Walk._value, base, ".__mro__") for base in bases]
        # What Equinox registers its modules with is its own.
        steps.append((_ANYTHING if is_module(it) else Walk._value, registered, ".<pytree>"))
        left_out = ABOUT_CLASS | OF_ENUM if issubclass(type(it), enum.EnumType) else ABOUT_CLASS
        for name, entry in zip(entries[::2], entries[1::2], strict=True):
            if type(name) is not str:
                raise _UnprovenError
            if name in left_out:
                steps += [(_ANYTHING, None, ""), (_ANYTHING, None, "")]
                continue
            # That of flags grows as they are joined.
            tell = TOLD_BY.get(name) if issubclass(it, enum.Flag) or name != "_value2member_map_" else None
            note = Walk._value if tell is None else functools.partial(Walk._asked, ask=tell)
            steps += [(EQUAL, name, ""), (note, entry, f".{name}")]
        self._read(*steps)

    def _class_of(self, it: Any) -> None:
        """The class of what is asked, which is no user's."""
        if is_written_in_c(it) or it is _JIT:  # on which jax sets the same methods for each function
            self._check(it, OBJECT)
        else:
            self._version(it)

    def _version(self, it: Any) -> None:
        """A class of a library: what is set on it or its bases counts."""
        for cls in reversed(mro_of(it)):
            vars(copyreg)["_slotnames"](cls)  # which else is noted on it when an instance is first pickled
        (version,) = _core.parts_of(it, VERSION, None, None)
        if version == 0:  # there are no more
            raise _UnprovenError
        if version not in _versions_of_libraries:
            entries_of_library(it)
            _versions_of_libraries.add(version)
        self._check(it, OBJECT, VERSION, version)

    def _instance(self, it: Any, expected: int = _NEW) -> None:
        cls, *found = self._check(it, expected, STATE)
        names = (segment for name in found[1::2] for segment in (".__dict__", attribute(name)))
        parts = [(Walk._value, *part) for part in zip(found, ("", *names), strict=True)]
        self._read((Walk._value, cls, ".__class__"), *parts)


_BY_TYPE: dict[int, Callable[[Walk, Any], None]] = {
    **dict.fromkeys(map(id, (tuple, list, dict, set, frozenset, bytearray, types.MethodType)), Walk._items),
    id(collections.defaultdict): Walk._items,
    id(collections.OrderedDict): Walk._instance,
    id(types.FunctionType): Walk._function,
    id(type(SETTINGS)): Walk._settings,
}


def _is_constant(it: Any) -> bool:
    """Whether one check is all that is made of a value, or of each in a tuple."""
    cls = type(it)
    if cls is tuple:
        return all(map(_is_constant, it))
    return (id(cls) in PLAIN or (facts(cls).constant and is_written_in_c(cls))) and not is_nan(it)


def written_down(
    roots: tuple[Any, ...], function: tuple[Any, ...]
) -> tuple[tuple[Check, ...], Callable[[int], str], bool, bool, str, str]:
    """Writes down what can be read of these values now. Called by C++ when a program is to be traced; with the function
    whose arguments they are, if they are any.

    Gives the checks, what each is of in words, whether the function is the last root, whether arrays are among it, what
    is not proven or an empty string, and what is not proven of functions among the roots, which are the same only as
    the same objects.
    """
    walk = Walk()
    unproven = walk.all(roots, function) or walk.root(SETTINGS)
    checks = () if unproven else tuple(walk.checks)
    places = functools.partial(place, walk.places)
    return checks, places, walk.has_function, walk.holds_arrays, unproven, walk.of_same_objects
