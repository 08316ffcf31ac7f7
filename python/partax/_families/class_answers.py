"""What abstract classes and Equinox's predicates answer for all objects of a class: for the native filters, which then
ask Python once for a class, and not for each leaf.
"""

import abc
import functools
import types
from collections.abc import Callable
from typing import Any

_BUILTINS: dict[str, Any] = {"isinstance": isinstance, "hasattr": hasattr, "float": float, "complex": complex}

# Equinox's predicates, with the imports that the compiler looks at. One whose code is another is called for each leaf.
_PREDICATES = '''
import jax
import jax.numpy as jnp
import numpy as np

def is_array(element):
    """"""
    return isinstance(element, _ARRAY_TYPES)

def is_array_like(element):
    """"""
    return isinstance(element, _ARRAY_LIKE_TYPES) or hasattr(element, "__jax_array__")

def is_inexact_array(element):
    """"""
    if isinstance(element, _NDARRAY_TYPES):
        return bool(np.issubdtype(element.dtype, np.inexact))
    elif isinstance(element, jax.Array):
        return jnp.issubdtype(element.dtype, jnp.inexact)
    else:
        return False

def is_inexact_array_like(element):
    """"""
    if hasattr(element, "__jax_array__"):
        element = element.__jax_array__()
    if isinstance(element, _NDARRAY_TYPES):
        return bool(np.issubdtype(element.dtype, np.inexact))
    elif isinstance(element, jax.Array):
        return jnp.issubdtype(element.dtype, jnp.inexact)
    else:
        return isinstance(element, (float, complex))
'''
# Of each: whether it is True of all instances of its classes, and whether it asks for `__jax_array__`. It is False of
# an object that is no instance and (if it asks) has no `__jax_array__`.
_TRAITS = {
    "is_array": (True, False),
    "is_array_like": (True, True),
    "is_inexact_array": (False, False),
    "is_inexact_array_like": (False, True),
}
# The global with the classes that it asks about; the other two ask about arrays of NumPy and jax.Array.
_GLOBALS = {"is_array": "_ARRAY_TYPES", "is_array_like": "_ARRAY_LIKE_TYPES"}

# (dictionary, name, the value there or None where there is none): what an answer has been read from
_Reads = tuple[tuple[dict[str, Any], str, Any], ...]
# (classes, True of all their instances, asks for `__jax_array__`, what this was read from)
Answers = tuple[tuple[type, ...], bool, bool, _Reads]


def abc_functions() -> tuple[Callable[..., Any], ...]:
    """How `abc.ABCMeta` answers isinstance, and what tells when it may answer otherwise; empty if not CPython's."""
    checks = tuple(vars(abc.ABCMeta).get(name) for name in ("__instancecheck__", "__subclasscheck__"))
    is_native = isinstance(abc.get_cache_token, types.BuiltinFunctionType)
    if not is_native or any(getattr(check, "__globals__", None) is not vars(abc) for check in checks):
        return ()
    return (*checks, abc.get_cache_token)  # pyright: ignore[reportReturnType] - None was ruled out


def equinox_answers(function: types.FunctionType) -> Answers | None:
    """What is known of a function of Equinox's module of predicates; None if it is not as it is written here."""
    name, scope = function.__code__.co_name, function.__globals__
    if name not in _TRAITS or _text(function.__code__) != _written()[name]:
        return None
    listed = _GLOBALS.get(name, "_NDARRAY_TYPES")
    classes: Any = scope.get(listed)
    module = scope.get("jax")
    if not isinstance(classes, tuple) or not isinstance(module, types.ModuleType):
        return None
    reads: list[tuple[dict[str, Any], str, Any]] = [(scope, listed, classes)]
    for builtin, value in _BUILTINS.items():
        reads += [(scope, builtin, None), (function.__builtins__, builtin, value)]
    if name not in _GLOBALS:
        array = vars(module).get("Array")
        reads += [(scope, "jax", module), (vars(module), "Array", array)]
        classes += (array,)
    if name == "is_inexact_array_like":
        classes += (float, complex)
    return (classes, *_TRAITS[name], tuple(reads)) if all(isinstance(kind, type) for kind in classes) else None


@functools.cache
def _written() -> dict[str, tuple[Any, ...]]:
    written: dict[str, Any] = {}
    exec(_PREDICATES, written)
    return {name: _text(written[name].__code__) for name in _TRAITS}


def _text(code: types.CodeType) -> tuple[Any, ...]:
    """All of a code object that its result depends on; the docstring is not."""
    constants = code.co_consts
    if constants and isinstance(constants[0], str) and constants[0] != "__jax_array__":
        constants = ("", *constants[1:])
    return (
        code.co_code,
        code.co_names,
        constants,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_exceptiontable,
    )
