"""One value, array or node of a call as a small description: it compares, it prints, and keeps nothing alive."""

import functools
import weakref
import zlib
from dataclasses import dataclass
from typing import Any

import jax
from jax.core import Tracer

from partax._jax.private import context_mesh
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
    """Of an array leaf of a call; `traced` is what the program sees of it, a tracer or the value itself.

    There is one for all that are alike, as a model has thousands of arrays of few shapes.
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


def class_text(kind: type) -> str:
    return short_name(kind) if kind.__module__ == "builtins" else f"{kind.__module__}.{short_name(kind)}"


def weak_refs(value: Any) -> tuple[Any, ...]:
    try:
        return (weakref.ref(value),)
    except TypeError:
        return ()
