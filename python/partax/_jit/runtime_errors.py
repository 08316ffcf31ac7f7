"""Errors that a program raises while it runs, by `equinox.error_if`: under filter_jit as under Equinox's own."""

import functools
import logging
import os
import sys
from typing import Any

import jax
from jax.core import Tracer

from partax._families.equinox_private import keep_from_log, last_runtime_error, text_of_runtime_error
from partax._jax.programs import every_equation, open_equations

FRAME_ID = os.urandom(16)
"""What Equinox looks for in the frames above an error: those below it are the inside of the program."""

_LIBRARY = "equinox"
_NAME = "_EquinoxRuntimeError"
_CALLBACK = "raises"
"""What Equinox calls the class of the error in the callback, and the callback."""


def silence_callbacks() -> None:
    """Keeps jax from printing errors of Equinox's as those of callbacks. To be called before one may be raised."""
    if _LIBRARY in sys.modules:
        _silence()


def holds_errors() -> bool:
    """Whether what this thread traces may hold errors of Equinox's. Called by the native wrapper at its end."""
    if _LIBRARY not in sys.modules:
        return False
    equations = open_equations()
    return equations is None or any(map(_raises, every_equation(equations)))


def wait_for(returned: Any) -> None:
    """Waits for the program that has returned this, and raises what it raises. Called by the native wrapper."""
    for leaf in jax.tree.leaves(returned):
        if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer):
            leaf.block_until_ready()
            return


def raised_at_run_time(error: BaseException) -> bool:
    """Whether a program has raised this by `equinox.error_if`."""
    return _LIBRARY in sys.modules and f"{_NAME}: " in str(error)


def as_equinox_raises(error: BaseException) -> BaseException:
    """The error in the place of jax's, for which `raised_at_run_time` is true: it is long and does not help."""
    import equinox

    message, stack = last_runtime_error()
    # Of a program that was traced inside of another one first, there is that one's id. The first id is error_if's own.
    ids = [part for part in stack if not isinstance(part, str)]
    end = stack.index(FRAME_ID if FRAME_ID in ids else ids[1]) if len(ids) > 1 else len(stack)
    inside = [part for part in stack[:end] if isinstance(part, str)]
    if not message:
        message = str(error).split(f"{_NAME}: ", 1)[1].split("\n\n\n", 1)[0]
    found = equinox.EquinoxRuntimeError(text_of_runtime_error(message, "".join(inside[::-1])))
    found.__suppress_context__ = True  # the error in its place
    return found


def _raises(equation: Any) -> bool:
    callback = equation.params.get("callback") if equation.primitive.name == "pure_callback" else None
    function = getattr(callback, "callback_func", callback)
    while isinstance(function, functools.partial):
        function = function.func
    module, name = str(getattr(function, "__module__", "")), getattr(function, "__name__", "")
    return module.partition(".")[0] == _LIBRARY and name == _CALLBACK


def _is_no_error(record: logging.LogRecord) -> bool:
    return not (record.exc_info and type(record.exc_info[1]).__name__ == _NAME)


@functools.cache
def _silence() -> None:
    keep_from_log(_is_no_error)
