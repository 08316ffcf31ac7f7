"""Which values never change, so that it makes no difference whether two equal ones are one object."""

import dataclasses
import types
from typing import Any, NamedTuple

import jax
import numpy as np

from partax._guards.type_traits import facts

# By id, since a class of the user's may have a hash of its own: that of a built-in type is no other's.
PLAIN = {*map(id, (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)))}
_COMPARING = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__")


def compares_as(cls: Any, base: Any) -> bool:
    return all(getattr(cls, name) is getattr(base, name) for name in _COMPARING)


def is_constant(it: Any) -> bool:
    """Whether it makes no difference whether two of a value, or of each in a tuple, are one object."""
    if type(it) is tuple:
        return all(map(is_constant, it))
    if id(type(it)) in PLAIN or isinstance(it, jax.tree_util.PyTreeDef):
        return True
    known = facts(type(it))
    return known.constant or known.enum


def is_plain_scalar(cls: type) -> bool:
    """Whether a class of NumPy's numbers is that of a dtype, and not a subclass, which may have more."""
    return not issubclass(cls, (np.void, np.object_)) and np.dtype(cls).type is cls


class _Pair(NamedTuple):
    first: Any


DESCRIPTORS = {
    *map(id, (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)),
    *map(id, (types.GetSetDescriptorType, types.MemberDescriptorType)),
    id(type(vars(_Pair)["first"])),
}
"""Methods of classes that are written in C, and attributes of such: entries of classes, never changed."""
# Known by identity: what dataclasses name in the methods that they write; and jax's array, which has another's name.
SENTINELS = {id(dataclasses.MISSING), id(vars(dataclasses).get("_HAS_DEFAULT_FACTORY")), id(jax.Array), id(type(None))}
