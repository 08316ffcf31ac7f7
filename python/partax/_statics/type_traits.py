"""What a type tells of its instances: how they compare, whether their state is in reach, whether they can change."""

import dataclasses
import functools
import types
from typing import Any, NamedTuple

from partax._compat.families.equinox import module_class
from partax._statics.libraries import is_installed
from partax._statics.user_objects import asked_once, read

_HEAP_TYPE = 1 << 9
_WORD = object.__basicsize__ // 2
# Classes whose instances never change and tell themselves apart by `==`, by module and name: nothing is imported here.
_CONSTANT_CLASSES = {
    ("numpy", "dtype"),
    ("builtins", "range"),
    ("fractions", "Fraction"),
    ("decimal", "Decimal"),
    ("datetime", "date"),
    ("datetime", "time"),
    ("datetime", "timedelta"),
    ("datetime", "tzinfo"),
    ("pathlib", "PurePath"),
    ("pathlib._local", "PurePath"),
    ("uuid", "UUID"),
    ("re", "Pattern"),
    ("ipaddress", "_IPAddressBase"),
    ("types", "GenericAlias"),
    ("types", "UnionType"),
    ("typing", "Union"),
    ("jax", "ShapeDtypeStruct"),
}
_CONSTANT_JAX_CLASSES = {"Sharding", "PartitionSpec", "Mesh", "AbstractMesh", "Device", "PyTreeDef", "UnspecifiedValue"}
# Classes whose `==` is that of one attribute and whose hash follows from it: each nnx object has one of its own.
_EQUAL_BY = {("flax.typing", "HashableMapping"): "_mapping"}


class Traits(NamedTuple):
    """What a type tells of its instances.

    Attributes:
      compared: the names of the fields by which a frozen dataclass compares; None for any other class.
      slots: the member descriptors of its slots, if an instance has no state but these, its dictionary and the content
        of a built-in base; None if it may have some that is out of reach.
      installed: whether Python or an installed library defines it.
      constant: whether instances never change and tell themselves apart by `==`.
      enum: whether instances are members of an enumeration.
      equal_by: the name of the attribute, a dictionary, by whose `==` alone instances compare; None of all others.
    """

    compared: tuple[str, ...] | None
    slots: tuple[Any, ...] | None
    installed: bool
    constant: bool
    enum: bool
    equal_by: str | None


def traits(cls: type) -> Traits:
    """Describes a type. Called by C++, once for each."""
    installed = is_installed(cls.__module__)
    constant = installed and any(map(_is_constant, cls.__mro__))
    is_enum = isinstance(read(cls, "_member_map_"), dict)
    equal_by = _EQUAL_BY.get((cls.__module__, cls.__qualname__)) if installed else None
    return Traits(_compared(cls), _slots(cls), installed, constant, is_enum, equal_by)


class Facts(NamedTuple):
    """What `Traits` says of a type, without the descriptors, which would keep it alive."""

    installed: bool
    constant: bool
    enum: bool
    in_reach: bool


@asked_once
def facts(cls: type) -> Facts:
    """What the readings ask of a type again and again."""
    known = traits(cls)
    return Facts(known.installed, known.constant, known.enum, known.slots is not None)


def _is_constant(cls: type) -> bool:
    is_of_jax = cls.__module__.startswith("jax") and cls.__name__ in _CONSTANT_JAX_CLASSES
    return is_of_jax or (cls.__module__, cls.__qualname__) in _CONSTANT_CLASSES


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
        elif not known.__flags__ & _HEAP_TYPE:
            return None
        else:
            slots += [member for member in known.__dict__.values() if isinstance(member, types.MemberDescriptorType)]
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
