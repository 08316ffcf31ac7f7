"""What the tests of the doctor share: types of arrays, findings of one kind, lines that are marked by a comment."""

import inspect
from collections.abc import Callable
from typing import Any

import jax

import partax
from partax.reports import Finding


def floats(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def ints(*shape: int) -> jax.ShapeDtypeStruct:
    return floats(*shape, dtype="int32")


def findings_of(kind: str, function: Any, *args: Any, **options: Any) -> list[Finding]:
    """What `partax.doctor` finds of one kind in the program of a call."""
    return [finding for finding in partax.doctor(function, *args, **options).findings if finding.kind == kind]


def marked(function: Callable[..., Any], comment: str = "here") -> int:
    """The number of the line of a function that ends with a comment."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if line.rstrip().endswith(f"# {comment}"))
