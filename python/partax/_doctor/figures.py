"""Sizes and types of arrays, and figures as text."""

import math
from typing import Any


def traced_type(aval: Any) -> tuple[Any, ...]:
    """The shape, the dtype, and whether the type is weak: for another one a function is traced again."""
    return aval.shape, aval.dtype, bool(getattr(aval, "weak_type", False))


def bytes_of(aval: Any) -> int:
    return math.prod(getattr(aval, "shape", ())) * getattr(getattr(aval, "dtype", None), "itemsize", 0)


def bytes_text(size: float) -> str:
    """`1.5 GiB`."""
    step = min(max(int(size).bit_length() - 1, 0) // 10, 4)
    return f"{_three(size / 1024**step)} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[step]}"


def seconds_text(seconds: float) -> str:
    """`1.5 s`, `12 ms`."""
    factor, unit = (1, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "us")
    return f"{_three(seconds * factor)} {unit}"


def _three(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"
