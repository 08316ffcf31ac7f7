"""The call that jax compiles a program for, and in what it differs from the one before it: why a function is traced."""

import inspect
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from partax._doctor.lines import USERS, rank, running_line
from partax._doctor.program import Kind
from partax._explain.description import Description, describe
from partax._explain.differences import Difference, differences
from partax._jax.watched import MISS, static_arguments
from partax._transforms.wrapper import names_of_arguments

# The file and the function that make such a call, and which of its variables is what was called.
_FRAMES: dict[Kind, tuple[str, str, str]] = {
    "jax": (*MISS, "fun"),
    "equinox": ("equinox/_jit.py", "_call", "jit_wrapper"),
    "nnx": ("flax/nnx/transforms/compilation.py", "__call__", "self"),
}
_LISTED = 2  # differences that a reason names
_RECREATED = "the function was created again, or its program dropped, for arguments of the same types"


class Trace(NamedTuple):
    reason: str  # empty for the first of a function
    changes: Sequence[Difference] = ()  # from an earlier one


Call = tuple[Kind, Any, dict[str, Any]]  # whose jit it is of, the function and its arguments


def call_in_progress() -> Call | None:
    """The call for which jax compiles now, as the user has made it: of a library's jit, if that is around jax's."""
    call: Call | None = None
    static = set[Any]()
    for frame, _ in traceback.walk_stack(sys._getframe()):
        if rank(frame.f_code.co_filename) == USERS:
            break
        for kind, (file, name, variable) in _FRAMES.items():
            if frame.f_code.co_name != name or not frame.f_code.co_filename.replace("\\", "/").endswith(file):
                continue
            args, kwargs = frame.f_locals["args"], frame.f_locals["kwargs"]
            if kind == "jax":
                static = set(static_arguments(frame.f_locals))
            function = inspect.unwrap(frame.f_locals[variable])
            names = names_of_arguments(function, len(args))
            arguments = {**dict(zip(names, args, strict=True)), **kwargs}
            if kind != "equinox":  # which leaves numbers static; others make arrays of those that are not
                static_names = {name for i, name in enumerate(names) if {i, i - len(args)} & static} | static
                dynamic = arguments.keys() - static_names
                arguments |= {name: jax.tree.map(_as_array, arguments[name]) for name in dynamic}
            call = kind, function, arguments
    return call


def _as_array(leaf: Any) -> Any:
    return np.asarray(leaf) if isinstance(leaf, (bool, int, float, complex)) else leaf


def trace_of(function: Any, arguments: dict[str, Any], descriptions: dict[Any, Description]) -> Trace:
    """Why a function is traced for a call: what differs from the latest traced one, which is in `descriptions`."""
    code = getattr(function, "__code__", None) or type(function)
    # Operations of jax's by themselves share a function: those of one line are compared.
    key = code if rank(getattr(code, "co_filename", "")) else (code, running_line())
    before, now = descriptions.get(key), describe(arguments)
    descriptions[key] = now
    changes = () if before is None else differences(before, now)
    return Trace("" if before is None else changes_text(changes) or _RECREATED, changes)


def changes_text(changes: Sequence[Difference]) -> str:
    return ", ".join(change.text for change in changes[:_LISTED])
