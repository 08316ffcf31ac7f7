"""Where a function is defined, what its arguments are called, and whose jit compiles it, for findings about these."""

import functools
import inspect
import re
from collections.abc import Sequence
from typing import Any, Literal

from partax._doctor.lines import NOWHERE, Line
from partax._families import equinox_private
from partax._jax.private import jit_options

_END_OF_NAME = re.compile(r"[.\[]")
Wrapper = Literal["partax", "jax", "equinox", "nnx"]


def definition(function: Any) -> Line:
    """The first line of a function, that of its decorator if it has one; an empty file where it has no code."""
    while isinstance(function, functools.partial):
        function = function.func
    plain = inspect.unwrap(function)
    code = getattr(plain, "__code__", None) or getattr(getattr(type(plain), "__call__", None), "__code__", None)  # noqa: B004
    return NOWHERE if code is None else Line(code.co_filename, code.co_firstlineno, code.co_qualname)


def wrapper_kind(wrapper: Any) -> Wrapper:
    """Whose jit has compiled a function; partax's for one that none has."""
    if jit_options(wrapper) is not None:
        return "jax"
    equinox_jit = equinox_private.jit_class()
    if equinox_jit is not None and isinstance(wrapper, equinox_jit):
        return "equinox"
    return "nnx" if type(wrapper).__module__.startswith("flax.nnx") else "partax"


def argument_name(path: str) -> str:
    """The argument that a path begins with: `model` of `model.layers[0].weight`."""
    return _END_OF_NAME.split(path, maxsplit=1)[0]


def names_text(names: Sequence[str]) -> str:
    """A tuple of names as it is written: `("model", "state")`."""
    return f'("{names[0]}",)' if len(names) == 1 else "(" + ", ".join(f'"{name}"' for name in names) + ")"
