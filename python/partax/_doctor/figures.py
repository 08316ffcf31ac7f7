"""Sizes and types of arrays, and figures as text."""

import math
from typing import Any


def type_of(aval: Any) -> tuple[Any, ...]:
    return aval.shape, aval.dtype


def traced_type(aval: Any) -> tuple[Any, ...]:
    """The same, and whether the type is weak: for another one a function is traced again."""
    return (*type_of(aval), bool(getattr(aval, "weak_type", False)))


def bytes_of(aval: Any) -> int:
    shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if shape is None or dtype is None or not all(isinstance(length, int) for length in shape):
        return 0
    return math.prod(shape) * int(getattr(dtype, "itemsize", 4))


def bytes_text(size: float) -> str:
    """`1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{_three(size)} {unit}"
        size /= 1024
    return f"{_three(size)} TiB"


def seconds_text(seconds: float) -> str:
    """`1.5 s`, `12 ms`."""
    if seconds >= 1:
        return f"{_three(seconds)} s"
    return f"{_three(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{_three(seconds * 1e6)} us"


def _three(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"
