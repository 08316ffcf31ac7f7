"""What the tests of the doctor share: types of arrays, findings of one kind, lines that are found by a comment."""

import inspect
from collections.abc import Callable
from typing import Any

import jax

import partax
from partax.reports import Finding

Call = tuple[Callable[..., Any], tuple[Any, ...]]  # a function and its arguments


def floats(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def ints(*shape: int) -> jax.ShapeDtypeStruct:
    return floats(*shape, dtype="int32")


def findings_of_kind(kind: str) -> Callable[..., list[Finding]]:
    """What `partax.doctor` finds of one kind in the program of a call."""

    def found(function: Any, *args: Any, **options: Any) -> list[Finding]:
        return [it for it in partax.doctor(function, *args, **options).findings if it.kind == kind]

    return found


def marked(function: Callable[..., Any], comment: str = "here") -> int:
    """The number of the line of a function that ends with a comment."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if line.rstrip().endswith(f"# {comment}"))
