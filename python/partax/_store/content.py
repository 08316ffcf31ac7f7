"""What a program depends on by content: digests that are equal in another process if a trace could not differ there."""

import hashlib
import itertools
import operator
import pickle
import struct
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from partax._families.installed import is_installed
from partax._families.objects import cached_by_identity, entries_of
from partax._functions.classes import kind_text
from partax._functions.proof import place_text, unprovable_text
from partax._functions.pure import module_of, name_of
from partax._functions.reader import Reader, UnprovableError
from partax._jax.nodes import tree_rules
from partax._pytree.filters import is_key
from partax._store import UnstoredError
from partax._store.environment import versions

_PYTHON = sys.stdlib_module_names
_LARGEST = 64 << 20  # bytes of captured arrays; programs with more of them are not stored


def number_content(value: "float | complex") -> tuple[str, str]:
    """A number by its bits: the sign of a NaN is not in its text."""
    number = complex(value)
    return type(value).__name__, struct.pack("dd", number.real, number.imag).hex()


@cached_by_identity
def code_digest(code: types.CodeType) -> bytes:
    return digest_of(_content(code))


def digest_of(value: Any) -> bytes:
    """A digest of plain values, which is the same in any process."""
    return hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=20).digest()


_PARTS = operator.attrgetter(
    *("co_name", "co_qualname", "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount"),
    *("co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_exceptiontable"),
)


def _content(code: types.CodeType) -> Any:
    return *_PARTS(code), list(map(_constant, code.co_consts))


def _constant(value: Any) -> Any:
    cls = type(value)
    if cls is types.CodeType:
        return _content(value)
    if cls is tuple:
        return "tuple", *map(_constant, value)
    if cls is frozenset:  # code may only ask what it contains
        return "frozenset", sorted(map(repr, map(_constant, value)))
    return cls.__name__, repr(value)


def placement_content(value: Any) -> Any:
    """A device, a mesh or a sharding as plain values; None for anything else."""
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
    """The dtype of an array or a struct; for random keys, their kind of jax's own."""
    if not jnp.issubdtype(array.dtype, jax.dtypes.extended):
        return str(array.dtype)
    kinds: list[Any] = []
    if is_key(array):  # the kind of a struct is known in a trace alone
        jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), array)
    if not kinds or not isinstance(kinds[0], str):
        raise UnstoredError(f"an array of `{array.dtype}`, which is a kind of random keys that is not jax's own")
    return f"key of {kinds[0]}"


def layout_content(array: Any) -> str:
    """The layout of an array in memory; empty if it is row by row."""
    layout = getattr(getattr(array, "format", None), "layout", None)
    is_usual = layout is None or (layout.major_to_minor == tuple(range(array.ndim)) and not layout.tiling)
    return "" if is_usual else str(layout)


Proof = list[tuple[str, bytes]]
"""What a program depends on, in words, and a digest of each."""


def content_of(roots: Iterable[tuple[str, Any]], classes: Iterable[type]) -> tuple[str, Callable[[], Proof]]:
    """A digest of values, each with its path, of classes of instances, and of all that code in them can read; and a
    function that returns the proof.
    """
    reader = _ContentReader()
    try:
        for path, value in roots:
            reader.root = path
            reader.read(value)
        reader.root = ""
        for cls in classes:
            reader.read_class_alone(cls)
    except UnprovableError as error:
        what = unprovable_text(reader.place, str(error))
        raise UnstoredError(f"`{reader.root}` {what}" if reader.root else what) from error
    reader.add_versions()
    places, digests = reader.places, [digest_of(token) for token in reader.tokens]
    return digest_of(digests).hex(), lambda: list(zip(itertools.starmap(_source_text, places), digests, strict=True))


def _source_text(root: str, segments: tuple[Any, ...]) -> str:
    text = place_text(segments)
    return f"'{root}{text[1:]}" if root and text.startswith("'.") else text or root or "its code"


class _ContentReader(Reader):
    """Reads tokens that hold in any process."""

    def __init__(self) -> None:
        super().__init__()
        self._libraries: set[str] = set()
        self._bytes = 0

    def identity(self, value: Any) -> None:
        if isinstance(value, type):
            self.add(("class", value.__module__, value.__qualname__))
            entries = entries_of(value)
            metadata = {name: item.metadata for name, item in entries.get("__dataclass_fields__", {}).items()}
            self.read_part((*tree_rules(value), metadata, entries.get("_member_map_")), " (what is registered)")
        elif isinstance(value, jax.Array):
            self.add(self._array_content(value))
        else:
            self.add(("member", type(value).__module__, type(value).__qualname__, value.name))
            self.read_part(value._value_, ".value")
            self.read_class_alone(type(value))

    def library_object(self, value: Any) -> None:
        module = value.__name__ if isinstance(value, types.ModuleType) else module_of(value)
        self._libraries.add(module.partition(".")[0])
        self.add((type(value).__qualname__, module, name_of(value)))

    def constant(self, value: Any) -> None:
        if isinstance(value, jax.tree_util.PyTreeDef):
            self.read((value.num_nodes, value.node_data(), value.children()))
        else:
            self.add(self._constant_content(value))

    def read_number(self, value: Any) -> None:
        self.add(number_content(value))

    def add_versions(self) -> None:
        for library in sorted(self._libraries):
            if library not in _PYTHON and library != "partax":
                self.root, self.place = f"the version of {library}", ()
                self.add((library, versions(library)))

    def _constant_content(self, value: Any) -> Any:
        cls = type(value)
        if cls in (type(None), bool, int, str, bytes):
            return cls.__name__, value
        if cls is types.CodeType:
            return "code", code_digest(value)
        if (placed := placement_content(value)) is not None:
            return placed
        if not is_installed(cls.__module__):
            raise UnprovableError(kind_text(value))
        try:
            return cls.__qualname__, pickle.dumps(value, protocol=4)
        except Exception as error:
            raise UnprovableError(f"{kind_text(value)}, which cannot be pickled") from error

    def _array_content(self, value: jax.Array) -> Any:
        self._bytes += value.nbytes
        if self._bytes > _LARGEST:
            raise UnprovableError(f"more than {_LARGEST >> 20} MiB of captured arrays")
        if value.is_deleted() or len(value.devices()) != 1:
            raise UnprovableError("an array that is deleted or on several devices")
        data = jax.random.key_data(value) if is_key(value) else value
        bits = hashlib.sha256(np.ascontiguousarray(np.asarray(data)).tobytes()).hexdigest()
        lies = placement_content(value.sharding), layout_content(data), getattr(value, "committed", None)
        if lies[0] is None:
            raise UnprovableError(f"an array that lies by a `{type(value.sharding).__name__}`")
        return "array", dtype_content(value), value.shape, bool(getattr(value, "weak_type", False)), lies, bits
