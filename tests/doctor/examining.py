"""What the tests of the doctor share: programs of functions, types of arrays, lines that are found by a comment."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import jax

from partax import Finding
from partax._doctor.examined import Examined, examine

Call = tuple[Callable[..., Any], tuple[Any, ...]]  # a function and its arguments


def floats(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def ints(*shape: int) -> jax.ShapeDtypeStruct:
    return floats(*shape, dtype="int32")


def examined(function: Any, *args: Any, memory_limit: int | None = None, **kwargs: Any) -> Examined:
    found = examine(function, args, kwargs)
    found.memory_limit = memory_limit
    return found


def found_by(find: Callable[[Examined], Iterable[Finding]]) -> Callable[..., list[Finding]]:
    """What a finder finds in the program of a call."""

    def found(function: Any, *args: Any, **options: Any) -> list[Finding]:
        return list(find(examined(function, *args, **options)))

    return found


def marked(function: Callable[..., Any], comment: str = "here") -> int:
    """The number of the line of a function that ends with a comment."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if line.rstrip().endswith(f"# {comment}"))
