"""The description of a type, which the native type table requests once for each type."""

from collections.abc import Callable
from typing import Any, NamedTuple

from partax._families import flax
from partax._families.describe import describe
from partax._functions.classes import Traits, traits
from partax._jax.nodes import registered_functions


class TypeDescription(NamedTuple):
    family: str
    child_names: tuple[str, ...] = ()
    static_names: tuple[str, ...] = ()
    layout: flax.Layout | None = None  # for the family "entries"
    functions: tuple[Callable[..., Any], Callable[..., Any]] | None = None  # with which the class is registered in jax
    traits: Traits | None = None  # None for the exact built-in types


def describe_type(obj: Any) -> TypeDescription:
    """Called by C++."""
    cls, (family, children, statics) = type(obj), describe(obj)
    if children is None:
        return TypeDescription(family)
    layout = flax.layout(cls) if family == "entries" else None
    functions = registered_functions(cls) if family in ("registered", "declared", "entries") else None
    return TypeDescription(family, children, statics or (), layout, functions, traits(cls))
