"""What a type tells of its instances: how they compare, and whether they can change."""

import dataclasses
import types
from typing import Any

import jax

from partax._families.equinox import module_class
from partax._functions.installed import is_installed
from partax._functions.objects import read
from partax._functions.pure import is_pure, module_of

# Classes of jax whose instances never change and tell themselves apart by `==`.
_CONSTANT = {
    *("AbstractMesh", "Device", "Mesh", "NamedSharding", "P", "PartitionSpec", "ShapeDtypeStruct"),
    *("SingleDeviceSharding", "UnspecifiedValue"),
}
# Classes whose `==` is that of one attribute and whose hash follows from it: each nnx object has one of its own.
_EQUAL_BY = {("flax.typing", "HashableMapping"): "_mapping"}


def traits(cls: type) -> tuple[tuple[str, ...] | None, bool, bool, str | None]:
    """Describes a type. Called by C++, once for each.

    Returns:
      The names of the fields by which a frozen dataclass compares, or None; whether Python or an installed library
      defines it; whether instances are members of an enumeration; what `equal_by` gives.
    """
    installed = is_installed(cls.__module__)
    return _compared(cls), installed, is_enum(cls), equal_by(cls) if installed else None


def equal_by(cls: type) -> str | None:
    """The name of the attribute by whose `==` alone instances compare, of classes that are known to do so."""
    return _EQUAL_BY.get((cls.__module__, cls.__qualname__))


def is_enum(cls: type) -> bool:
    """Whether instances are members of an enumeration."""
    return isinstance(read(cls, "_member_map_"), dict)


def is_constant(cls: type) -> bool:
    """Whether instances are objects of jax that never change and compare by `==`."""
    is_of_jax = module_of(cls).partition(".")[0] in ("jax", "jaxlib") and is_pure(cls)
    return cls is jax.Device or (is_of_jax and cls.__name__ in _CONSTANT)


def compares_fields(cls: type) -> bool:
    """Whether it is a frozen dataclass with the generated `==`."""
    return _compared(cls) is not None


def _compared(cls: type) -> tuple[str, ...] | None:
    owner: Any = next(base for base in cls.__mro__ if "__eq__" in base.__dict__)
    params: Any = owner.__dict__.get("__dataclass_params__")
    if owner is module_class():
        return tuple(cls.__dataclass_fields__)  # type: ignore[attr-defined]
    if params is None or not params.frozen or not params.eq:
        return None
    code = getattr(owner.__dict__["__eq__"], "__code__", None)
    # A class with an `__eq__` of its own keeps it, and its parameters do not say so.
    if not isinstance(code, types.CodeType) or not code.co_qualname.startswith("__create_fn__.<locals>"):
        return None
    return tuple(field.name for field in dataclasses.fields(owner) if field.compare)
