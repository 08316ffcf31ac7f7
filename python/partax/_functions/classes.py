"""By which method a reader reads an instance of a class, or by which parts, and where its content is."""

import builtins
import collections
import datetime
import decimal
import functools
import inspect
import logging
import operator
import pathlib
import re
import sys
import types
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from partax._families.comparison import is_enum
from partax._families.objects import cached_by_identity, entries_of, is_written_in_c, mro_of
from partax._functions.pure import is_listed_name, is_pure, module_of

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
    *("_abc_impl", "__abstractmethods__", "__match_args__", "__slots__", "__slotnames__", "__hash__"),
}


_CONTENTS: dict[type, Callable[[Any], Any]] = {
    **{cls: cls.__getnewargs__ for cls in (str, bytes, int, float, complex)},  # type: ignore[attr-defined]
    tuple: lambda value: tuple(tuple.__iter__(value)),
    list: list.copy,
    dict: dict.copy,
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    functools.partial: lambda value: (value.func, value.args, value.keywords),
}


@cached_by_identity
def instance_layout(cls: type) -> tuple[Callable[[Any], Any] | None, list[str]] | None:
    """What reads the content of a built-in base, if there is one, and the slots. None if some content is out of reach,
    or a class makes up attributes.
    """
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
    return (content, slots) if has_usual_metaclass(cls) else None


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


# ---- How instances are read

_OF_OBJECTS_ALIVE = {("flax.ids", "FlaxId"), ("flax.nnx.tracers", "TraceState")}
_TUPLE_GETTER = type(collections.namedtuple("_TUPLE_GETTER", "item").item)  # type: ignore[attr-defined]

_Parts = Callable[[Any], Any] | tuple[str, ...]
"""Returns the parts of a value, a tuple or the only one; or the names of the attributes that are its parts."""

_METHODS: dict[str, tuple[Any, ...]] = {
    "constant": (
        *(type(None), bool, int, str, bytes, type(...), type(NotImplemented)),
        *(decimal.Decimal, uuid.UUID),
        *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta),
        *(pathlib.PurePosixPath, inspect.Signature, type(sys.version_info)),
        *(types.UnionType, types.GenericAlias, jax.tree_util.PyTreeDef),
    ),
    "read_path": (pathlib.PosixPath, pathlib.WindowsPath),
    "read_number": (float, complex),
    "read_items": (tuple, list, set, frozenset, collections.deque),
    "read_dict": (dict, collections.OrderedDict, collections.defaultdict, collections.Counter),
    "read_numpy_array": (np.ndarray,),
    "read_function": (types.FunctionType,),
    "read_builtin": (types.BuiltinFunctionType,),
    "read_module": (types.ModuleType,),
    "read_jitted": (type(jax.jit(len)),),
    "read_class": (type,),
    "read_getter": (operator.attrgetter, operator.methodcaller),
    "library_object": (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
}
READ_BY: dict[Any, str | _Parts] = {
    **{cls: method for method, classes in _METHODS.items() for cls in classes},
    # A descriptor belongs to its class, which is known by identity.
    **dict.fromkeys((types.MemberDescriptorType, types.GetSetDescriptorType), lambda _: ()),
    bytearray: bytes,
    types.MappingProxyType: dict,
    getattr(builtins, "frozendict", types.MappingProxyType): dict,  # since 3.15
    types.MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords", "__dict__"),
    re.Pattern: ("pattern", "flags"),
    **dict.fromkeys((range, slice), ("start", "stop", "step")),
    type(functools.lru_cache(len)): ("__wrapped__",),
    **dict.fromkeys((operator.itemgetter, _TUPLE_GETTER), lambda value: value.__reduce__()[1]),
    property: ("fget", "fset", "fdel"),
    **dict.fromkeys((staticmethod, classmethod), ("__func__",)),
    functools.cached_property: ("func",),
    weakref.ReferenceType: lambda value: value(),
}


@cached_by_identity
def read_by_base(cls: type) -> str | _Parts:
    """How an instance of a class that is not in the table is read."""
    if issubclass(cls, type):
        return "read_class"
    if issubclass(cls, jax.Array):
        return "read_array"
    if issubclass(cls, np.generic):
        return operator.methodcaller("tobytes")
    if issubclass(cls, np.dtype) or is_constant(cls):
        return "constant"
    if is_enum(cls):
        return "identity"
    if (cls.__module__, cls.__qualname__) in _OF_OBJECTS_ALIVE:
        return lambda _: ()
    if (cls.__module__, cls.__name__) == ("flax.linen.module", "_DescriptorWrapper"):  # of a property
        return ("wrapped",)
    if cls.__name__ == "FlagValues" and module_of(cls).startswith("absl."):
        return lambda flags: {name: flags[name].value for name in flags}
    if issubclass(cls, (logging.Logger, logging.LoggerAdapter)):
        return "library_object"
    return "read_object"
