"""Types of arrays: what a trace depends on, and how many bytes they take."""

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
