"""The dtype and the shape of an array in words: `float32[3,4]`."""

from typing import Any


def array_text(array: Any) -> str:
    """The text of whatever has a dtype and a shape, typed PRNG keys included."""
    dtype: Any = array.dtype
    return f"{getattr(dtype, 'name', dtype)}[{','.join(map(str, array.shape))}]"
