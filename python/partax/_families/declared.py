"""Classes of chex, penzai and jax whose registered functions read and set attributes."""

import dataclasses
import inspect
import sys
from collections.abc import Callable
from typing import Any

import jax

from partax._families.fields import Description, hidden, identical, instance_dict, values_of
from partax._jax import nodes

_Fields = tuple[tuple[str, ...], tuple[str, ...]]
"""The attributes of a class that are its children, in order, and those that are its aux data."""


def _fields_of_chex(cls: type) -> _Fields | None:
    """All attributes of an instance are children, sorted by name."""
    flatten, _ = nodes.registered_functions(cls)
    if not dataclasses.is_dataclass(cls) or not str(getattr(flatten, "__module__", "")).startswith("chex."):
        return None
    # chex calls `__new__` and `__post_init__` whenever it rebuilds an instance.
    has_own_new = inspect.getattr_static(cls, "__new__") is not object.__dict__["__new__"]
    if has_own_new or hasattr(cls, "__post_init__"):
        return None
    return tuple(sorted(field.name for field in dataclasses.fields(cls))), ()


def _fields_of_penzai(cls: type) -> _Fields | None:
    struct: Any = getattr(sys.modules.get("penzai.core.struct"), "Struct", None)
    if struct is None or not issubclass(cls, struct) or not dataclasses.is_dataclass(cls):
        return None
    fields = dataclasses.fields(cls)
    children = tuple(field.name for field in fields if field.metadata.get("pytree_node", True))
    return children, tuple(field.name for field in fields if field.name not in children)


_LIBRARIES: dict[str, Callable[[type], _Fields | None]] = {
    "chex": _fields_of_chex,
    "jax": lambda cls: (("args", "keywords"), ("func",)) if cls is jax.tree_util.Partial else None,
    "penzai": _fields_of_penzai,
}


def describe(obj: Any) -> Description | None:
    """Describe an object of these classes; None if its functions do anything else, or it has other attributes."""
    cls = type(obj)
    candidates = (fields_of(cls) for library, fields_of in _LIBRARIES.items() if library in sys.modules)
    fields = next(filter(None, candidates), None)
    if fields is None:
        return None
    names = (*fields[0], *fields[1])
    values = None if hidden(cls, names) else values_of(obj, names)
    children, aux = nodes.flatten_one_level(obj)
    children = tuple(children)
    if values is None or not identical(children, values[: len(fields[0])]):
        return None
    if cls is jax.tree_util.Partial:
        return Description("declared", *fields) if aux is obj.func else None
    rebuilt = nodes.registered_functions(cls)[1](aux, children)
    order = tuple(instance_dict(rebuilt) or ())
    is_same = (
        len(instance_dict(obj) or ()) == len(names)
        and identical((child for _, child in nodes.flatten_one_level_with_keys(obj)[0]), children)
        and type(rebuilt) is cls
        and sorted(order) == sorted(names)
        and identical(values_of(rebuilt, names) or (), values)
    )
    object.__new__(cls)  # raises for a class whose empty instances the native stages cannot create either
    return Description("declared", *fields, order) if is_same else None
