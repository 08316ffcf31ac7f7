"""Which values never change, and what of a class is not written down."""

import dataclasses
import inspect
import types
from typing import Any

import jax

# By id, since a class of the user's may have a hash of its own: that of a built-in type is no other's.
PLAIN = {*map(id, (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)))}
_COMPARING = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__")


def compares_as(cls: Any, base: Any) -> bool:
    return all(getattr(cls, name) is getattr(base, name) for name in _COMPARING)


DESCRIPTORS = {
    *map(id, (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)),
    id(types.GetSetDescriptorType),
    id(type(vars(inspect.FullArgSpec)["args"])),  # an item of a named tuple
}
"""Methods of classes that are written in C, and attributes of such: entries of classes, never changed."""
# Known by identity: what dataclasses name in the methods that they write; and jax's array, which has another's name.
SENTINELS = {id(dataclasses.MISSING), id(vars(dataclasses).get("_HAS_DEFAULT_FACTORY")), id(jax.Array), id(type(None))}

# Entries of classes that are not written down: code that reads them is not proven, or they follow from the others.
# What the statement of a class, and decorators of libraries, write about it.
ABOUT_CLASS = {
    *("__dict__", "__weakref__", "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"),
    *("__classdictcell__", "__orig_bases__", "__type_params__", "__firstlineno__", "__static_attributes__"),
    *("__doc__", "__qualname__"),
    "_abc_impl",  # out of reach, but all guards count what was registered with abstract classes
}
# What an enumeration keeps of its members, beside each member itself, and what finds them by name and by value.
OF_ENUM = {
    *("_generate_next_value_", "_hashable_values_", "_new_member_", "_unhashable_values_", "_unhashable_values_map_"),
}
