"""By which of its methods a reader reads a value, or by which parts, from the value's type."""

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
from partax._families.objects import cached_by_identity
from partax._functions.classes import is_constant

_OF_OBJECTS_ALIVE = {("flax.ids", "FlaxId"), ("flax.nnx.tracers", "TraceState")}
_TUPLE_GETTER = type(collections.namedtuple("_TUPLE_GETTER", "item").item)  # type: ignore[attr-defined]

_Parts = Callable[[Any], Any] | tuple[str, ...]
"""Returns the parts of a value, a tuple or the only one; or the names of the attributes that are its parts."""

_METHODS: dict[str, tuple[Any, ...]] = {
    "constant": (
        *(type(None), bool, int, str, bytes, type(...), type(NotImplemented)),
        *(decimal.Decimal, uuid.UUID),
        *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta),
        *(pathlib.PosixPath, pathlib.PurePosixPath, pathlib.WindowsPath, inspect.Signature, type(sys.version_info)),
        *(types.UnionType, types.GenericAlias, jax.tree_util.PyTreeDef),
    ),
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
    "library_object": (
        *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
        *(logging.Logger, logging.RootLogger),
    ),
}
READ_BY: dict[Any, str | _Parts] = {
    **{cls: method for method, classes in _METHODS.items() for cls in classes},
    # A descriptor belongs to its class, which is known by identity.
    **dict.fromkeys((types.MemberDescriptorType, types.GetSetDescriptorType), lambda _: ()),
    bytearray: bytes,
    types.MappingProxyType: dict,
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


def register_parts(cls: type, parts: _Parts) -> None:
    """Have instances of a class of ours read by their parts."""
    READ_BY[cls] = parts


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
    if issubclass(cls, (logging.Logger, logging.LoggerAdapter)):
        return "library_object"
    return "read_object"
