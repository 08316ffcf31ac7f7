"""What a type tells of its instances: how they compare, whether their state is in reach, whether they can change."""

import dataclasses
import functools
import struct
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from partax._families import flax
from partax._families.describe import describe
from partax._families.equinox import module_class
from partax._families.flax import Layout
from partax._functions.installed import is_installed
from partax._functions.objects import asked_once, is_written_in_c, read
from partax._functions.pure import is_pure, module_of
from partax._jax.nodes import registered_functions

_WORD = struct.calcsize("P")
# Classes of jax whose instances never change and tell themselves apart by `==`.
_CONSTANT = {
    *("AbstractMesh", "Device", "Mesh", "NamedSharding", "P", "PartitionSpec", "ShapeDtypeStruct"),
    *("SingleDeviceSharding", "UnspecifiedValue"),
}
# Classes whose `==` is that of one attribute and whose hash follows from it: each nnx object has one of its own.
_EQUAL_BY = {("flax.typing", "HashableMapping"): "_mapping"}


class Traits(NamedTuple):
    """What the native stages ask of a type."""

    compared: tuple[str, ...] | None  # the names of the fields by which a frozen dataclass compares
    slots: tuple[Any, ...] | None  # member descriptors, if these, a dictionary and a built-in base's content are all
    is_installed: bool  # Python or an installed library defines it
    is_enum: bool  # instances are members of an enumeration
    equal_by: str | None  # what `equal_by` returns


class TypeDescription(NamedTuple):
    """What the native type table asks of a type."""

    family: str
    child_names: tuple[str, ...] = ()
    static_names: tuple[str, ...] = ()
    layout: Layout | None = None  # of the family "entries"
    functions: tuple[Callable[..., Any], Callable[..., Any]] | None = None  # with which jax has registered the class
    traits: Traits | None = None  # None of the exact built-in types


def describe_type(obj: Any) -> TypeDescription:
    """Describes the type of an object. Called by C++, once for each."""
    cls, (family, children, statics) = type(obj), describe(obj)
    if children is None:
        return TypeDescription(family)
    layout = flax.layout(cls) if family == "entries" else None
    functions = registered_functions(cls) if family in ("registered", "declared", "entries") else None
    return TypeDescription(family, children, statics or (), layout, functions, traits(cls))


def traits(cls: type) -> Traits:
    installed = is_installed(cls.__module__)
    is_enum = isinstance(read(cls, "_member_map_"), dict)
    return Traits(_compared(cls), _slots(cls), installed, is_enum, equal_by(cls) if installed else None)


def equal_by(cls: type) -> str | None:
    """The name of the attribute by whose `==` alone instances compare, of classes that are known to do so."""
    return _EQUAL_BY.get((cls.__module__, cls.__qualname__))


class Facts(NamedTuple):
    """What a proof asks of a class again and again; nothing that would keep the class alive."""

    constant: bool
    """Whether instances never change and compare by their bits, or by `==`."""
    enum: bool
    """Whether instances are members of an enumeration."""
    compares_fields: bool
    """Whether it is a frozen dataclass with the generated `==`."""
    slots: tuple[str, ...] | None
    """The names of the slots, if an instance has no other state than these, its dictionary and a built-in base's."""


@asked_once
def facts(cls: type) -> Facts:
    compared, slots, _, is_enum, _ = traits(cls)
    is_of_jax = module_of(cls).partition(".")[0] in ("jax", "jaxlib") and is_pure(cls)
    is_constant = cls is jax.Device or (is_of_jax and cls.__name__ in _CONSTANT)
    names = None if slots is None else tuple(slot.__name__ for slot in slots)
    return Facts(is_constant, is_enum, compared is not None, names)


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


def _slots(cls: type) -> tuple[Any, ...] | None:
    base, slots = object, list[Any]()
    for known in cls.__mro__:
        if known in _CONTENTS:
            if not issubclass(base, known):
                base = known
        elif is_written_in_c(known):
            return None
        else:
            entries = known.__dict__.copy().values()  # another thread may set one
            slots += [member for member in entries if isinstance(member, types.MemberDescriptorType)]
    words = len(slots) + sum((cls.__dictoffset__ > 0, cls.__weakrefoffset__ > 0))
    words -= sum((base.__dictoffset__ > 0, base.__weakrefoffset__ > 0))
    if cls.__itemsize__ != base.__itemsize__ or (base.__itemsize__ and slots):
        return None
    sized = base.__itemsize__ or cls.__basicsize__ == base.__basicsize__ + _WORD * words
    return tuple(slots) if sized else None


# The built-in bases whose content is known.
_CONTENTS: set[type] = {
    *(object, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, bytearray),
    *(functools.partial, types.SimpleNamespace),
}
