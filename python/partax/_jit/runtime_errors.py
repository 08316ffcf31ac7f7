"""Errors of calls that fail: the path of the argument that is to blame, and errors of `equinox.error_if`."""

import functools
import sys
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._families.equinox_private import keep_from_log, last_runtime_error, text_of_runtime_error
from partax._jax.programs import every_equation, open_equations
from partax._jit.forwarded_arrays import is_of_lost_arrays, name_lost_arrays
from partax._jit.shardings import misplaced_leaf
from partax._pytree.spec_data import leaf_owners, leaf_paths

FRAME_ID = b"a call of partax"  # the same in each process, since stored programs hold it
"""A mark that Equinox looks for in the frames above an error: those below it are inside the program."""

_LIBRARY = "equinox"
_NAME = "_EquinoxRuntimeError"
_CALLBACK = "raises"
"""Equinox's names of the class of the error in the callback, and of the callback."""


def silence_callbacks() -> None:
    """Keep JAX from printing errors of Equinox as those of callbacks. Call it before one may be raised."""
    if _LIBRARY in sys.modules:
        keep_from_log(_NAME)


def holds_errors() -> bool:
    """Return whether the program that this thread traces may contain errors of Equinox."""
    if _LIBRARY not in sys.modules:
        return False
    equations = open_equations()
    return equations is None or any(map(_raises, every_equation(equations)))


def _as_equinox_raises(error: BaseException) -> BaseException:
    """The error that replaces jax's for one of `equinox.error_if`, which is long and does not help."""
    import equinox

    message, stack = last_runtime_error()
    # Of a program that was traced inside another one first, there is that one's id. The first id is error_if's own.
    ids = [part for part in stack if not isinstance(part, str)]
    end = stack.index(FRAME_ID if FRAME_ID in ids else ids[1]) if len(ids) > 1 else len(stack)
    inside = [part for part in stack[:end] if isinstance(part, str)]
    if not message:
        message = str(error).split(f"{_NAME}: ", 1)[1].split("\n\n\n", 1)[0]
    runtime_error = equinox.EquinoxRuntimeError(text_of_runtime_error(message, "".join(inside[::-1])))
    runtime_error.__suppress_context__ = True
    return runtime_error


def _raises(equation: Any) -> bool:
    callback = equation.params.get("callback") if equation.primitive.name == "pure_callback" else None
    function = getattr(callback, "callback_func", callback)
    while isinstance(function, functools.partial):
        function = function.func
    module, name = str(getattr(function, "__module__", "")), getattr(function, "__name__", "")
    return module.partition(".")[0] == _LIBRARY and name == _CALLBACK


def explain_failure(error: BaseException, call: _core.Call) -> BaseException:
    """The exception of a call that has failed, or one with the path of an argument. Called by the native wrapper."""
    if not isinstance(error, (ValueError, TypeError, RuntimeError)):
        return error
    options, in_body = call.options, call.is_in_body
    is_of_program = not in_body and not isinstance(error, TypeError)
    if is_of_program and _LIBRARY in sys.modules and f"{_NAME}: " in str(error):
        return _as_equinox_raises(error)
    if is_of_program and is_of_lost_arrays(error):
        described, leaves = call.describe()
        donated_values = options.donated_values(call.shape)
        donated = [owner in donated_values for owner in leaf_owners(described)[: len(leaves)]]
        name_lost_arrays(error, leaf_paths(described), leaves, donated)
        return error
    if isinstance(error, RuntimeError):
        return error
    kind = ValueError if isinstance(error, ValueError) else TypeError
    if (in_body or options.in_shardings is None) if kind is ValueError else call.has_traced:
        return error  # no argument is to blame, and none is read again, which may run code of the user's
    described, leaves = call.describe()
    if isinstance(error, jax.errors.UnexpectedTracerError):
        paths = leaf_paths(described)
        tracers = [f"`{paths[i]}`" for i, leaf in enumerate(leaves) if isinstance(leaf, Tracer)]
        error.add_note(f"partax: the call had a tracer at {' '.join(tracers)}")
        return error
    if isinstance(error, ValueError):
        wrong_leaf = misplaced_leaf(options, call.shape, call.values, leaves, error)
    else:
        wrong_leaf = _untraceable(leaves)
    if wrong_leaf is None:
        return error
    index, text = wrong_leaf
    explained = kind(f"`{leaf_paths(described)[index]}`: {text}")
    explained.__cause__ = error
    return explained


def _untraceable(leaves: tuple[Any, ...]) -> tuple[int, str] | None:
    """The first NumPy array that jax cannot trace."""
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "OSUmM":
            return i, (
                f"found a NumPy array of dtype {leaf.dtype}, expected numbers or booleans, which jax can trace; "
                "convert it, or pass it as a tuple"
            )
    return None
