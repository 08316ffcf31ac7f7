"""What a class says about its instances: how they compare, whether they can change, and where their content is."""

import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from partax._families.objects import cached_by_identity, entries_of, is_written_in_c, mro_of
from partax._functions.pure import is_listed_name, is_pure, module_of

# Classes of jax whose instances never change and tell themselves apart by `==`.
_CONSTANT = {
    *("AbstractMesh", "Device", "Mesh", "NamedSharding", "P", "PartitionSpec", "ShapeDtypeStruct"),
    *("SingleDeviceSharding", "UnspecifiedValue"),
}


def is_constant(cls: type) -> bool:
    """Whether instances are objects of jax that never change and compare by `==`."""
    return cls.__name__ in _CONSTANT and module_of(cls).partition(".")[0] in ("jax", "jaxlib") and is_pure(cls)


# Entries of classes that describe the class, or follow from others.
ABOUT_CLASS = {
    *("__dict__", "__weakref__", "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"),
    *("__classdictcell__", "__orig_bases__", "__parameters__", "__type_params__", "__firstlineno__", "__doc__"),
    *("__static_attributes__", "__qualname__", "__module__", "__dataclass_fields__", "__dataclass_params__"),
    *("_abc_impl", "__abstractmethods__", "__match_args__", "__slots__", "__hash__"),
}


class Layout(NamedTuple):
    """Where instances of a class have their content."""

    content: Callable[[Any], Any] | None  # of a built-in base
    slots: tuple[str, ...]
    has_dict: bool


_CONTENTS: dict[type, Callable[[Any], Any]] = {
    tuple: lambda value: tuple(tuple.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    functools.partial: lambda value: (value.func, value.args, value.keywords),
}


@cached_by_identity
def instance_layout(cls: type) -> Layout | None:
    """The layout of a class; None if some content is out of reach, or a class makes up attributes."""
    content, slots = None, list[str]()
    for base in mro_of(cls):
        if base in _CONTENTS:
            content = content or _CONTENTS[base]
        elif is_written_in_c(base):
            if base.__basicsize__ > object.__basicsize__ and base is not types.SimpleNamespace:
                return None
        else:
            entries = entries_of(base).copy()  # another thread may set one
            if not is_pure(base) and not entries.keys().isdisjoint(("__getattr__", "__getattribute__")):
                return None
            slots += [name for name, entry in entries.items() if isinstance(entry, types.MemberDescriptorType)]
    return Layout(content, tuple(slots), cls.__dictoffset__ != 0) if has_usual_metaclass(cls) else None


@cached_by_identity
def library_bases(cls: type) -> tuple[type, ...]:
    """The bases that libraries define, whose code may read an instance's attributes and call its methods."""
    return tuple(base for base in mro_of(cls) if is_pure(base) and module_of(base) not in ("builtins", "abc", "typing"))


def has_usual_metaclass(cls: type) -> bool:
    return type(cls) is type or is_pure(type(cls))


def kind_text(value: Any) -> str:
    """What a value is, in words: `a numpy Generator`, `a Config`."""
    cls = type(value)
    package = cls.__module__.partition(".")[0]
    is_users = package in ("builtins", "__main__") or (not is_written_in_c(cls) and not is_listed_name(package))
    name = cls.__qualname__ if is_users else f"{package} {cls.__qualname__}"
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
