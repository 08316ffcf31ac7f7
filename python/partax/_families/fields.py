"""Where the attributes of an instance are, and whether the native stages find them there."""

import functools
import inspect
import types
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

# (kind, names of the children, names of the static fields)
Description = tuple[str, tuple[str, ...], tuple[str, ...]]

# What is read so whatever is registered, by its exact class.
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
_HEAP_TYPE = 1 << 9
_fallbacks: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()


def fall_back(cls: type, reason: str) -> None:
    """Notes why the functions of a class are called though its library usually does what is known of it."""
    _fallbacks[cls] = reason


def fallback(cls: type) -> str:
    """What the functions of a class do otherwise than is known of its library; "" if nothing is noted."""
    return _fallbacks.get(cls, "")


class Fields(NamedTuple):
    """What is declared of a class with functions: which attributes are its children, in order, and which its aux data.
    A partial is made of these. Any other is made as an empty instance, of which these are set, and no more is done.
    """

    children: tuple[str, ...]
    statics: tuple[str, ...]
    is_partial: bool = False


def in_slots(cls: type, names: tuple[str, ...]) -> bool:

    def is_slot(member: Any) -> bool:
        owner: Any = member.__objclass__ if isinstance(member, types.MemberDescriptorType) else None
        return owner is not None and (bool(owner.__flags__ & _HEAP_TYPE) or owner is functools.partial)

    return bool(names) and all(is_slot(inspect.getattr_static(cls, name, None)) for name in names)


def hidden(cls: type, names: tuple[str, ...]) -> str:
    """The first attribute that is not in the dictionary of an instance, unless all are in slots; "" if none."""
    if in_slots(cls, names):
        return ""
    for name in names:
        if cls.__dictoffset__ == 0 or hasattr(type(inspect.getattr_static(cls, name, None)), "__set__"):
            return name
    return "" if cls.__dictoffset__ != 0 else "__dict__"


def values_of(obj: Any, names: tuple[str, ...]) -> list[Any] | None:
    """The attributes as the native stages read them; None if one is not set."""
    cls = type(obj)
    if in_slots(cls, names):
        try:
            return [inspect.getattr_static(cls, name).__get__(obj) for name in names]
        except AttributeError:
            return None
    known = instance_dict(obj)
    return None if known is None or any(name not in known for name in names) else [known[name] for name in names]


def instance_dict(obj: Any) -> dict[str, Any] | None:
    """The dictionary of an instance, past what its class calls so."""
    kept = (cls.__dict__.get("__dict__") for cls in type(obj).__mro__)
    found = next((it.__get__(obj) for it in kept if isinstance(it, types.GetSetDescriptorType)), None)
    return found if isinstance(found, dict) else None


def identical(left: Iterable[Any], right: Iterable[Any]) -> bool:
    left, right = list(left), list(right)
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))
