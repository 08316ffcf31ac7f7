"""What Equinox's predicates ask of an object beside its class, so that native filters call them for fewer leaves."""

import sys
import types
from typing import Any

import jax

# Of each: the global with the classes that it asks about, beside built-in ones and `jax.Array`; whether it asks for the
# dtype of their instances, and for `__jax_array__`.
_ASKED = {
    "is_array": ("_ARRAY_TYPES", False, False),
    "is_array_like": ("_ARRAY_LIKE_TYPES", False, True),
    "is_inexact_array": ("_NDARRAY_TYPES", True, False),
    "is_inexact_array_like": ("_NDARRAY_TYPES", True, True),
}


def asked_by_equinox(function: types.FunctionType) -> tuple[bool, bool] | None:
    """Whether a predicate of Equinox's own asks about dtypes of arrays, and for `__jax_array__`; None of any other
    function, and of one that asks classes which say themselves what is an instance.
    """
    name = function.__name__
    if name not in _ASKED or getattr(sys.modules.get("equinox"), name, None) is not function:
        return None
    listed, *asks = _ASKED[name]
    classes: Any = function.__globals__.get(listed)
    known = isinstance(classes, tuple) and all(isinstance(cls, type) and _is_plain(cls) for cls in classes)
    return (asks[0], asks[1]) if known else None


def _is_plain(cls: type) -> bool:
    return cls is jax.Array or type(cls).__instancecheck__ is type.__instancecheck__
