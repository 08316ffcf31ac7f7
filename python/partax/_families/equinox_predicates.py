"""What Equinox's predicates answer for all objects of a class, so that native filters call them for fewer leaves."""

import sys
import types
from typing import Any

import jax

# Of each: the global with the classes that it asks about beside those that follow, whether it is True of all
# instances of these, and whether it asks for `__jax_array__`. It is False of an object that is no instance and (if it
# asks) has no `__jax_array__`.
_TRAITS = {
    "is_array": ("_ARRAY_TYPES", (), True, False),
    "is_array_like": ("_ARRAY_LIKE_TYPES", (), True, True),
    "is_inexact_array": ("_NDARRAY_TYPES", (jax.Array,), False, False),
    "is_inexact_array_like": ("_NDARRAY_TYPES", (jax.Array, float, complex), False, True),
}


def equinox_answers(function: types.FunctionType) -> tuple[tuple[type, ...], bool, bool] | None:
    """The classes that a predicate of Equinox's own asks about, whether it is True of all their instances, and whether
    it asks for `__jax_array__`; None of any other function.
    """
    name = function.__name__
    if name not in _TRAITS or getattr(sys.modules.get("equinox"), name, None) is not function:
        return None
    listed, others, takes_instances, asks_conversion = _TRAITS[name]
    classes: Any = function.__globals__.get(listed)
    known = isinstance(classes, tuple) and all(isinstance(cls, type) for cls in classes)
    return ((*classes, *others), takes_instances, asks_conversion) if known else None
