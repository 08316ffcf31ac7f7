"""What guards look at, by content: a digest that another process finds again where a trace could not be another."""

import dataclasses
import hashlib
import math
import operator
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from partax._guards import walk as checks
from partax._guards.constants import DESCRIPTORS, PLAIN
from partax._guards.installed import is_installed
from partax._guards.library_attributes import ABSENT, SetByOthersError, entries_of_library, name_of, value_of
from partax._guards.places import place as place_of
from partax._guards.type_traits import facts
from partax._jax.private import SETTINGS
from partax._store import UnstoredError
from partax._store.code_content import code_digest, digest_of, number_content, reads_hashes
from partax._store.registered import found_by_name, registered_by_users, registered_fields, registrations
from partax._store.versions import versions

_LARGEST = 64 << 20  # bytes of captured arrays; programs with more of them are not stored
_GETTER: Any = type(vars(checks.Named)["globals"])  # of an item of a named tuple
# Functions that make a set of what is none, as of two views of dictionaries.
_OPERATORS = operator.attrgetter(*["and_", "or_", "xor", "sub", "iand", "ior", "ixor", "isub"])(operator)
_MAKING_SETS = {*map(id, (set, frozenset, *_OPERATORS))}
# What dataclasses write for a default that is not there, and for one that is made anew.
_SENTINELS = {id(it): name for name in ("MISSING", "_HAS_DEFAULT_FACTORY") if (it := vars(dataclasses).get(name))}


def placement_content(value: Any) -> Any:
    """A device, a mesh or a sharding as plain values; None where it is none that is known."""
    if isinstance(value, jax.Device):
        return "device", value.platform, value.id
    if isinstance(value, jax.sharding.Mesh):
        axes = (value.axis_names, value.devices.shape, str(value.axis_types))
        return "mesh", axes, tuple(map(placement_content, value.devices.flat))
    if isinstance(value, jax.sharding.SingleDeviceSharding):
        return "on", placement_content(*value.device_set), value.memory_kind
    if isinstance(value, jax.sharding.NamedSharding) and isinstance(value.mesh, jax.sharding.Mesh):
        return "sharding", placement_content(value.mesh), repr(value.spec), value.memory_kind
    return None


def dtype_content(array: Any) -> str:
    """The dtype of an array, or of what stands for one; of random keys their kind, which must be one of jax's own."""
    if not jnp.issubdtype(array.dtype, jax.dtypes.extended):
        return str(array.dtype)
    kinds: list[Any] = []
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):  # of what stands for an array, a trace alone tells it
        jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), array)
    if not kinds or not isinstance(kinds[0], str):
        raise UnstoredError(f"an array of `{array.dtype}`, which is a kind of random keys that is not jax's own")
    return f"key of {kinds[0]}"


def layout_content(array: Any) -> str:
    """How the numbers of an array lie in memory; empty where it is row by row."""
    layout = getattr(getattr(array, "format", None), "layout", None)
    is_usual = layout is None or (layout.major_to_minor == tuple(range(array.ndim)) and not layout.tiling)
    return "" if is_usual else str(layout)


class Content(NamedTuple):
    digest: str  # of all of it
    digests: list[bytes]  # of each part
    as_ints: dict[int, bytes]  # of those that are floats, by number, what they are as the equal int
    place: Callable[[int], "types.CodeType | str"]  # what a part is, by number: code, or in words


def content_of(roots: tuple[Any, ...]) -> Content:
    """The content of all that the code of some values can read, at which the guards would begin.

    Equal digests mean that a trace could not tell the two sets of values apart, be it in two processes. What another
    process could not find again raises an `UnstoredError`.
    """
    registered = registered_by_users()
    walk = checks.Walk()
    unproven = walk.all((*roots, *registered.values())) or walk.of_same_objects
    if unproven:
        raise UnstoredError(unproven)
    reader = _Reader()
    count, places, codes, names = len(walk.checks), walk.places, reader.codes, reader.names

    def place(at: int) -> types.CodeType | str:  # which keeps none of the values
        return (codes.get(at) or place_of(places, at)) if at < count else names[at - count]

    try:
        for check, value, part in zip(walk.checks, walk.kept, places, strict=True):
            reader.add(check, value, *part)
        for it, name in walk.of_libraries:
            reader.add_attribute(name_of(it, name), value_of(it, name))
        reader.add_rest(tuple(registered))
    except (UnstoredError, SetByOthersError) as error:
        raise UnstoredError(f"{place(len(reader.digests)) or 'a value'}: {error}") from error

    return Content(digest_of(reader.digests).hex(), reader.digests, reader.as_ints, place)


class _Reader:
    """Adds one check after the other to a digest, each as a tuple of plain values."""

    def __init__(self) -> None:
        self.digests: list[bytes] = []
        self.as_ints: dict[int, bytes] = {}
        self.codes: dict[int, types.CodeType] = {}
        self.names: list[str] = []  # of what is no check
        self._libraries: set[str] = set()
        self._bytes = 0
        self._objects: dict[int, int] = {}  # those of no class of their own, by the order they are met in
        self._listed: set[int] = set()  # functions whose code is a pure library's

    def add(self, check: checks.Check, value: Any, whole: int, segment: str | int) -> None:
        """Adds the next one, of a part of the value whose number is given."""
        expected, known, parts, argument, count = check
        token: Any = ()
        if expected == checks.MET:
            token = known
        elif expected == checks.CODE:
            self.codes[len(self.digests)] = value
            token = code_digest(value)
            if whole not in self._listed and reads_hashes(value):
                raise UnstoredError("it may read a set, whose order another process has otherwise")
        elif expected == checks.EQUAL:
            token = self._constant(value)
            if type(value) is float and value.is_integer() and math.copysign(1, value) > 0:
                self.as_ints[len(self.digests)] = digest_of((expected, ("int", int(value)), parts, "", count))
            if id(value) in _MAKING_SETS and segment != ".__class__":
                raise UnstoredError("code may make a set, whose order another process has otherwise")
        elif expected == checks.OBJECT:
            token = self._object(value, parts == checks.CLASS)
            if parts == checks.VERSION:
                token = token, entries_of_library(value)
        elif expected == checks.ADDRESS:
            token = self._address(value)
        is_set = type(value) in (set, frozenset) and parts == checks.ITEMS
        if is_set and (value or whole not in self._listed):  # dataclasses have one in which they note what they print
            raise UnstoredError("a set, whose order another process may have otherwise")
        if parts in (checks.FUNCTION, checks.CLASS) and not is_installed(value.__module__):
            token = token, found_by_name(value)
        self._listed |= {len(self.digests)} if parts == checks.FUNCTION and argument is None else set()
        named = repr(argument) if parts == checks.FUNCTION else ""  # the names of the globals that come next
        self._hash((expected, token, parts, named, count))

    def add_attribute(self, name: str, value: Any) -> None:
        """Adds what others may have set on something of a library, or that nobody has."""
        self.names.append(f"no {name}" if value is ABSENT else name)
        it = value.__reduce__() if isinstance(value, np.dtype) else value
        known = self._object(it, False) if isinstance(it, types.ModuleType) else self._constant(it)
        self._hash(("attribute", name, value is not ABSENT and known))

    def add_rest(self, registered: tuple[tuple[str, str], ...]) -> None:
        """Adds what is of no single value: the names of classes that users have registered, whose functions are among
        the checks; the version of each library that something was of, and of what it stands on.
        """
        self.names += ["how a library's class is registered with jax", "jax.core.Tracer"]
        self._hash(registered)
        self._hash([entries_of_library(it) for it in filter(None, SETTINGS.tracer)])
        for library in sorted(self._libraries):
            self.names.append("the version of a library")
            self._hash((library, versions(library)))

    def _hash(self, token: Any) -> None:
        self.digests.append(digest_of(token))

    def _named(self, value: Any) -> Any:
        """What is known by the module that defines it, and its name there."""
        owner = None if isinstance(value, type) else getattr(value, "__objclass__", None)  # of a descriptor
        if isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, type):
            owner = value.__self__  # as of `tuple.__new__`
        module = getattr(owner or value, "__module__", None)
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if not isinstance(module, str) or not isinstance(name, str):
            raise UnstoredError(f"a `{type(value).__name__}` without a name of its own")
        self._library(module)
        of_class = (registered_fields(value), registrations(value)) if isinstance(value, type) else ()
        return type(value).__qualname__, module, name, of_class

    def _library(self, module: str) -> None:
        root = module.partition(".")[0]
        if root not in sys.stdlib_module_names and root != "partax":
            self._libraries.add(root)

    def _constant(self, value: Any) -> Any:
        cls = type(value)
        if cls is float or cls is complex:
            return number_content(value)
        if id(cls) in PLAIN:
            return cls.__name__, value
        if cls is tuple:
            return tuple(map(self._constant, value))
        if isinstance(value, jax.tree_util.PyTreeDef):
            return "treedef", self._node(value.node_data()), *map(self._constant, value.children())
        if isinstance(value, np.generic):
            return value.dtype.name, value.dtype.str, value.tobytes()  # those of ml_dtypes have `<V1` in common
        if cls is object:
            return "object", self._objects.setdefault(id(value), len(self._objects))
        if id(value) in _SENTINELS:
            return _SENTINELS[id(value)]
        placed = placement_content(value)  # meshes can be called too
        if placed is not None:
            return placed
        if type(value) is _GETTER:
            return "item", value.__reduce__()[1][0]
        if id(cls) in DESCRIPTORS or callable(value) or isinstance(value, type):
            return self._named(value)
        if facts(cls).constant and is_installed(cls.__module__):
            self._library(cls.__module__)
            try:
                return cls.__qualname__, pickle.dumps(value, protocol=4)
            except Exception as error:
                raise UnstoredError(f"a `{cls.__name__}`, which cannot be written to a file") from error
        raise UnstoredError(f"a `{cls.__name__}`")

    def _node(self, data: tuple[type, Any] | None) -> Any:
        if data is None:  # of a leaf
            return ()
        cls, aux = data
        return self._named(cls), self._constant(tuple(aux) if type(aux) is list else aux)

    def _object(self, value: Any, is_opened: bool) -> Any:
        if isinstance(value, types.ModuleType):
            self._library(value.__name__)
            return "module", value.__name__
        if isinstance(value, type):
            if is_opened and not is_installed(value.__module__):  # its entries come next
                return "class", value.__module__, value.__qualname__, registrations(value)
            return self._named(value)
        if isinstance(value, jax.Array):
            return self._array(value)
        if facts(type(value)).enum:
            return "member", value._name_
        if value is jax.sharding.PartitionSpec.UNCONSTRAINED:
            return "unconstrained"
        raise UnstoredError(f"a `{type(value).__name__}`, which is known by identity")

    def _array(self, value: jax.Array) -> Any:
        self._bytes += value.nbytes
        if self._bytes > _LARGEST:
            raise UnstoredError(f"more than {_LARGEST >> 20} MiB of captured arrays")
        if isinstance(value, Tracer) or len(value.devices()) != 1 or value.is_deleted():
            raise UnstoredError("an array that is traced, deleted or on several devices")
        data = jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value
        bits = hashlib.sha256(np.ascontiguousarray(np.asarray(data)).tobytes()).hexdigest()
        lies = placement_content(value.sharding), layout_content(data), getattr(value, "committed", None)
        if lies[0] is None:
            raise UnstoredError(f"an array that lies by a `{type(value.sharding).__name__}`")
        return "array", dtype_content(value), value.shape, bool(getattr(value, "weak_type", False)), lies, bits

    def _address(self, value: Any) -> Any:
        """The globals of a library's function, or of one that a library has written into a class."""
        name = value.get("__name__")
        if is_installed(name):
            self._library(str(name))
        return "globals", name
