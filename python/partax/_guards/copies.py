"""Copies of static values that hold mutable containers."""

import functools
from typing import Any

from partax import _core
from partax._guards.type_traits import facts
from partax._guards.walk import STATE

_NOTHING: Any = object()  # stands for an attribute that is not there


def copied(value: Any) -> Any:
    """A value with a copy of each list, dict, set and bytearray in it; itself if there is none. Called by C++.

    Those of subclasses stay, as does a dataclass that cannot be made anew.
    """
    cls = type(value)
    if cls is bytearray:
        return bytearray(value)
    if cls is list or cls is set:
        return cls(map(copied, value))
    if cls is dict:
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, functools.partial):
        return _copied_partial(value)
    if isinstance(value, tuple):
        items = [copied(item) for item in value]
        return value if _same(items, value) else tuple.__new__(cls, items)
    if not facts(cls).frozen or (cls.__base__ is not object and cls.__new__ is not object.__new__):
        return value
    names, before = (_core.parts_of(value, STATE, None, _NOTHING)[start::2] for start in (2, 3))
    items = [copied(item) for item in before]
    if _same(items, before):
        return value
    made = object.__new__(cls)
    for name, item in zip(names, items, strict=True):
        if item is not _NOTHING:
            object.__setattr__(made, name, item)
    return made


def _copied_partial(value: Any) -> Any:
    before = (*value.args, *value.keywords.values())
    items = [copied(item) for item in before]
    if type(value) is not functools.partial or _same(items, before):
        return value
    args, keywords = items[: len(value.args)], items[len(value.args) :]
    made = functools.partial(value.func, *args, **dict(zip(value.keywords, keywords, strict=True)))
    made.__dict__.update(value.__dict__)
    return made


def _same(left: Any, right: Any) -> bool:
    return all(a is b for a, b in zip(left, right, strict=True))
