"""Reads a value, and what code in it can read, as a flat list of tokens: equal lists mean that code reads the same."""

import collections
import enum
import functools
import importlib.util
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer

from partax._core import JitFunction
from partax._families.objects import entries_of, is_written_in_c, mro_of
from partax._functions.classes import (
    ABOUT_CLASS,
    READ_BY,
    has_usual_metaclass,
    instance_layout,
    kind_text,
    library_bases,
    read_by_base,
)
from partax._functions.code import Names, is_counter, names_of
from partax._functions.pure import is_listed_module, is_listed_name, is_pure, module_of, name_of
from partax._jax.private import jit_options, jit_parts

_MOST_TOKENS = 20_000
_LARGEST_ARRAY = 1 << 20  # bytes of a NumPy array, whose content is compared for each re-created function
_ABSENT: Any = object()

# What `CallableContent` in C++ reads, in addition to what is pure, constant or known by identity.
_SIMPLE = {
    *(object, float, complex, tuple, list, dict, types.FunctionType, types.MethodType, types.ModuleType),
    *(functools.partial, type(jax.jit(len)), JitFunction),
}
_MAKERS = ("__init__", "__new__", "__post_init__")  # what runs where an instance is created
_OF_FILES = frozenset(("exists", "glob", "is_dir", "is_file", "iterdir", "open", "read_bytes", "read_text", "stat"))
_COPIED_FROM_JIT = {"_fun", "_jit_info"}  # what `jax.vmap(jax.jit(f))` copies into its `__dict__`


class UnprovableError(Exception):
    """A value that cannot be proven unchanged; the text says what it is."""


def _is_user(user: Any, mentioned: frozenset[str]) -> bool:
    """Whether code that mentions these names uses a name of a class, or creates instances of a class."""
    if not isinstance(user, str):
        return not mentioned.isdisjoint(("replace",) if isinstance(user, type) else user)
    return user in mentioned or "getattr" in mentioned


class Reader:
    """Reads values one after the other. The tokens hold in one process: `identities` keep the ids in them valid."""

    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self.places: list[tuple[str, tuple[Any, ...]]] = []  # of each token: a root, and segments from there down
        self.root = ""
        self.place: tuple[Any, ...] = ()
        self.globals: list[Any] = []  # of `Proof`
        self.is_simple = True
        self.identities: list[Callable[[], Any]] = []
        self.num_array_bytes = 0
        self._numbers: dict[int, int] = {}  # of objects, by id
        self._kept: list[Any] = []  # alive for their ids
        self._mentioned: list[frozenset[str]] = []  # by the code that was read
        self._unused: dict[Any, list[tuple[str, Any, Any]]] = {}  # of classes, by what would use them

    # ---- What subclasses do otherwise.

    def identity(self, value: Any) -> None:
        """Read an array of jax, a class or an enum member."""
        try:
            self.identities.append(weakref.ref(value))
        except TypeError:
            self.identities.append(lambda: value)
        self.add(id(value))

    def library_object(self, value: Any) -> None:
        """Read a function, class or module on the allow-list, or a logger."""
        self.add(id(value))

    def constant(self, value: Any) -> None:
        self.add((type(value), value))

    # ---- Values by type.

    def add(self, token: Any) -> None:
        self.tokens.append(token)
        self.places.append((self.root, self.place))

    def read_part(self, value: Any, segment: Any) -> None:
        """Read an attribute or item, or a variable of a function, whose segment is (kind, name, function)."""
        outer = self.place
        self.place = (*outer, segment)
        self.read(value)
        self.place = outer  # an exception leaves it where the value is that cannot be read

    def _read_attribute(self, name: str, value: Any) -> None:
        self.add(name)
        self.read_part(value, f".{name}")

    def read(self, value: Any) -> None:
        cls = type(value)
        read_by = READ_BY.get(cls) or read_by_base(cls)
        if cls not in _SIMPLE and read_by not in ("constant", "read_array", "identity"):
            self.is_simple = self.is_simple and callable(value) and is_pure(value)
        if isinstance(read_by, str):
            getattr(self, read_by)(value)
        elif isinstance(read_by, tuple):
            self.add(cls)
            for name in read_by:
                self.read_part(getattr(value, name), f".{name}")
        else:
            self.add(cls)
            self.read(read_by(value))
        if len(self.tokens) > _MOST_TOKENS:
            raise UnprovableError("more than can be compared")

    def _is_repeated(self, value: Any) -> bool:
        number = self._numbers.get(id(value))
        if number is None:
            self._numbers[id(value)] = len(self._numbers)
            self._kept.append(value)
            return False
        self.add(("repeated", number))
        return True

    def read_number(self, value: Any) -> None:
        self.add((type(value), repr(value)))  # tells -0.0 from 0.0; NaNs are equal

    def read_items(self, value: Any) -> None:
        cls = type(value)
        if cls is not tuple and self._is_repeated(value):
            return
        self.add((cls, len(value)))
        is_set = cls in (set, frozenset)
        for i, item in enumerate(sorted(value, key=repr) if is_set else value):
            self.read_part(item, "{...}" if is_set else f"[{i}]")

    def read_dict(self, value: Any) -> None:
        if self._is_repeated(value):
            return
        self.add((type(value), len(value)))
        for key, item in list(value.items()):
            self.read(key)
            self.read_part(item, f"[{key!r}]" if type(key) is str else f"[{kind_text(key)}]")
        if type(value) is collections.defaultdict:
            self.read_part(value.default_factory, ".default_factory")

    def read_array(self, value: Any) -> None:
        if isinstance(value, Tracer):
            raise UnprovableError("an array that is being traced")
        self.num_array_bytes += value.nbytes
        self.identity(value)

    def read_numpy_array(self, value: Any) -> None:
        if value.dtype.hasobject:
            raise UnprovableError("a NumPy array of objects")
        if value.nbytes > _LARGEST_ARRAY:
            raise UnprovableError(f"a NumPy array of {value.nbytes >> 20} MiB, which is too large to be compared")
        self.add((value.dtype, value.shape, value.tobytes()))

    # ---- Callables.

    def read_function(self, function: types.FunctionType) -> None:
        code, scope = function.__code__, function.__globals__
        module = str(scope.get("__name__"))
        is_of_library = is_listed_name(module)
        if is_of_library and is_pure(function):
            self.library_object(function)
            return
        owner = module_of(function)
        if is_of_library and is_listed_name(owner) and not is_listed_name(owner, name_of(function)):
            raise UnprovableError(f"'{function.__name__}' of {owner}")
        if self._is_repeated(function):
            return
        # Of what a library's function has made, such as `jax.vmap(f)`, only what it holds counts.
        names = None if is_of_library and is_listed_name(module, code.co_qualname) else names_of(code)
        self.constant(code)
        self.globals += (code, () if names is None else names.chains)
        self.add(function.__name__)
        if names is not None:
            self._mention(names.mentioned)
        if function.__closure__ is not None:
            for name, cell in zip(code.co_freevars, function.__closure__, strict=True):
                value = _ABSENT if cell == types.CellType() else cell.cell_contents
                if names is None or not is_counter(names, name, value):
                    self.read_part(value, ("closure", name, function))
        for defaults in (function.__defaults__, function.__kwdefaults__):
            if defaults is not None:
                self.read_part(defaults, ("default", "", function))
        for name, value in list(function.__dict__.items()):
            if name not in _COPIED_FROM_JIT:
                self._read_attribute(name, value)
        if names is not None:
            self._globals(function, names)

    def _globals(self, function: types.FunctionType, names: Names) -> None:
        scope, builtins = function.__globals__, function.__builtins__
        for chain in names.chains:
            name = chain[0]
            value = scope[name] if name in scope else builtins.get(name, _ABSENT)
            if not is_counter(names, name, value):
                self._global(value, chain, function)
        for module, *name in names.imports:
            self.is_simple = False
            absolute = importlib.util.resolve_name(module, scope.get("__package__"))
            if absolute not in sys.modules:
                raise UnprovableError(f"the module '{absolute}', which is not imported yet")
            self._global(sys.modules[absolute], (module, *name), function)

    def _global(self, value: Any, chain: tuple[str, ...], function: types.FunctionType) -> None:
        """Read a global, or an attribute of it if it is a module."""
        name = chain[0]
        for attribute in (*chain[1:], None):
            if not isinstance(value, types.ModuleType):
                break
            if is_listed_module(value):
                rest = ".".join(chain[chain.index(attribute) :]) if attribute else ""
                if not is_listed_name(value.__name__, rest):
                    raise UnprovableError(f"'{name}.{rest}', which has state of its own")
                self.library_object(value)
                return
            if attribute is None:
                break
            if attribute not in vars(value):
                raise UnprovableError(f"'{attribute}' of the module '{value.__name__}'")
            value, name = vars(value)[attribute], f"{name}.{attribute}"
            self.is_simple = False
        self.read_part(value, ("global", name, function))

    def read_module(self, module: types.ModuleType) -> None:
        if not is_listed_module(module):
            raise UnprovableError(f"the module '{module.__name__}'")
        self.library_object(module)

    def read_jitted(self, jitted: Any) -> None:
        if is_pure(jitted):
            self.library_object(jitted)
            return
        options = jit_options(jitted)
        if options is None:
            raise UnprovableError("a `jax.jit` whose options are unknown")
        self.add(type(jitted))
        for name, value in options.items():
            self.read_part(value, f".{name}")
        self.read(jit_parts(jitted)[0])

    def read_builtin(self, function: Any) -> None:
        owner = function.__self__
        if owner is None or isinstance(owner, (types.ModuleType, type)):
            if not (is_listed_name(module_of(function), function.__name__) or isinstance(owner, type)):
                raise UnprovableError(f"'{function.__name__}' of {module_of(function)}")
            self.library_object(function)
            return
        self.add((type(function), function.__name__))
        self.read_part(owner, ".__self__")

    # ---- Classes and instances.

    def read_class(self, cls: type) -> None:
        self.read_class_alone(cls)
        for base in mro_of(cls):
            self._read_used(base)

    def read_class_alone(self, cls: type) -> None:
        if is_pure(cls) or (cls.__module__ == "builtins" and is_written_in_c(cls)):
            self.library_object(cls)
            return
        if is_written_in_c(cls) or not has_usual_metaclass(cls):
            raise UnprovableError(f"the class '{cls.__qualname__}' of {cls.__module__}")
        if self._is_repeated(cls):
            return
        self.identity(cls)
        for base in mro_of(cls)[1:]:
            if not is_pure(base):
                self.read_class_alone(base)
        library = library_bases(cls)
        for name, entry in list(entries_of(cls).items()):
            if name in ABOUT_CLASS or (issubclass(cls, enum.Enum) and name[0] == "_" and not callable(entry)):
                continue
            # What a class defines counts if code names it, or if Python or a library may use it.
            user = cls if name in _MAKERS else name
            is_of_library = name.startswith("__") or any(name in entries_of(base) for base in library)
            if is_of_library and user is name:
                self._read_attribute(name, entry)
            else:
                self._read_if_used(user, name, entry)

    def _read_if_used(self, user: Any, name: str, entry: Any) -> None:
        if any(_is_user(user, names) for names in self._mentioned):
            self._read_attribute(name, entry)
        else:
            self._unused.setdefault(user, []).append((name, entry, self.place))

    def read_path(self, path: Any) -> None:
        self.constant(path)
        self._read_if_used(_OF_FILES, "open", open)

    def _read_used(self, user: Any) -> None:
        """Read what classes have for this name, or to create instances."""
        outer = self.place
        for name, entry, place in self._unused.pop(user, ()):
            self.place = place
            self._read_attribute(name, entry)
        self.place = outer

    def _mention(self, names: frozenset[str]) -> None:
        self._mentioned.append(names)
        for user in list(self._unused):
            if _is_user(user, names):
                self._read_used(user)

    def read_getter(self, value: Any) -> None:
        self._mention(frozenset(("getattr",)))
        self.add(type(value))
        self.read(value.__reduce__()[1:])

    def read_object(self, value: Any) -> None:
        if value is sys.stdout or value is sys.stderr or (callable(value) and is_pure(value)):
            self.library_object(value)
            return
        cls = type(value)
        layout = instance_layout(cls)
        if layout is None:
            raise UnprovableError(kind_text(value))
        if self._is_repeated(value):
            return
        self.read_class_alone(cls)
        content, slots = layout
        if content is not None:
            self.read(content(value))
        attributes = list(getattr(value, "__dict__", {}).items())
        attributes += [(name, getattr(value, name)) for name in slots if hasattr(value, name)]
        self.add(len(attributes))
        for name, part in attributes:
            self._read_attribute(name, part)
