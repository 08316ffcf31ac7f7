"""Where an instance stores its attributes: in slots or in its dictionary, which are all that the native stages read."""

import functools
import inspect
import operator
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from partax._families.objects import is_written_in_c


class Description(NamedTuple):
    """What the instances of a class are. The native type table reads this once for each class."""

    family: str  # a kind of leaf, or a kind of node
    child_names: tuple[str, ...] = ()
    static_names: tuple[str, ...] = ()
    # The attributes in the order in which they are set on an empty instance, for C++ as indices into children followed
    # by statics; empty if the class is called instead.
    set_order: tuple[str | int, ...] = ()
    is_frozen: bool = False  # whether an instance never changes, and has no attributes outside of the tree
    layout: Any = None  # of the family "entries": a `partax._families.flax.Layout`
    flatten: Callable[..., Any] | None = None  # (node) -> (children, aux data), for families with registered functions
    unflatten: Callable[..., Any] | None = None  # (aux data, children) -> node
    error: str = ""  # why the declaration of a user is wrong
    traits: Any = None  # a `partax._families.comparison.Traits`; None for the exact built-in types


# The family of each exact built-in class, which a registration does not change.
BUILT_IN: dict[type, str] = {
    type(None): "none",
    tuple: "tuple",
    list: "list",
    dict: "dict",
    OrderedDict: "ordered_dict",
    defaultdict: "default_dict",
    **dict.fromkeys((bool, int), "int"),
    **dict.fromkeys((float, complex), "float"),
    **dict.fromkeys((str, bytes, type, types.FunctionType), "other"),
}


def in_slots(cls: type, names: tuple[str, ...]) -> bool:
    members = [inspect.getattr_static(cls, name, None) for name in names]
    return bool(members) and all(
        isinstance(member, types.MemberDescriptorType)
        and (member.__objclass__ is functools.partial or not is_written_in_c(member.__objclass__))
        for member in members
    )


def hidden(cls: type, names: tuple[str, ...]) -> str:
    """The first attribute that is not in the dictionary of an instance, unless all are in slots; "" if none."""
    if in_slots(cls, names):
        return ""
    if cls.__dictoffset__ == 0:
        return next(iter(names), "__dict__")
    return next((name for name in names if hasattr(type(inspect.getattr_static(cls, name, None)), "__set__")), "")


def values_of(obj: Any, names: tuple[str, ...]) -> list[Any] | None:
    """The values of attributes as the native stages read them; None if one is not set, or elsewhere."""
    cls = type(obj)
    if hidden(cls, names):
        return None
    attributes = instance_dict(obj) or {}
    try:
        if in_slots(cls, names):
            return [inspect.getattr_static(cls, name).__get__(obj) for name in names]
        return [attributes[name] for name in names]
    except (AttributeError, KeyError):
        return None


def instance_dict(obj: Any) -> dict[str, Any] | None:
    """The dictionary of an instance, even if its class overrides `__dict__`."""
    members = (cls.__dict__.get("__dict__") for cls in type(obj).__mro__)
    getters = (member for member in members if isinstance(member, types.GetSetDescriptorType))
    attributes = next((getter.__get__(obj) for getter in getters), None)
    return attributes if isinstance(attributes, dict) else None


def identical(left: Iterable[Any], right: Iterable[Any]) -> bool:
    left, right = list(left), list(right)
    return len(left) == len(right) and all(map(operator.is_, left, right))
