"""How instances of a class compare, and whether it is the user's own."""

import dataclasses
import types
from typing import Any, NamedTuple

from partax._families.equinox import module_class
from partax._families.installed import is_installed
from partax._families.objects import attribute_of


class Traits(NamedTuple):
    """What the native type table asks of a class."""

    compared: tuple[str, ...] | None  # the names of the fields by which a frozen dataclass compares
    is_installed: bool  # Python or an installed library defines it
    is_enum: bool
    equal_by: str | None


def traits(cls: type) -> Traits:
    installed = is_installed(cls.__module__)
    return Traits(compared_fields(cls), installed, is_enum(cls), equal_by(cls) if installed else None)


def equal_by(cls: type) -> str | None:
    """The attribute that decides `==` and the hash of instances, for the mapping that each nnx object has."""
    return "_mapping" if (cls.__module__, cls.__qualname__) == ("flax.typing", "HashableMapping") else None


def is_enum(cls: type) -> bool:
    return isinstance(attribute_of(cls, "_member_map_"), dict)


def compared_fields(cls: type) -> tuple[str, ...] | None:
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
