"""The type that an array has together with another one in its place: dtype and weak type, by jax's promotion."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from partax._pytree.array_text import array_text
from partax._transforms.tree_differences import is_number


class ArrayType(NamedTuple):
    """What an array is but for its values; a Python number is one of weak type."""

    shape: tuple[int, ...]
    dtype: Any
    weak: bool

    @property
    def text(self) -> str:
        """As messages have it."""
        return f"{array_text(self)}{' of weak type' if self.weak else ''}"


class Unsettled(Exception):
    """The leaves at these paths have to have other types, and what `owner` belongs to is traced with them again."""

    def __init__(self, owner: Any, types: Mapping[str, ArrayType]):
        self.owner = owner
        self.types = types


def array_type(value: Any) -> ArrayType:
    """The type of an array or a Python number; a type is its own."""
    if isinstance(value, ArrayType):
        return value
    aval: Any = jax.typeof(value)
    return ArrayType(aval.shape, aval.dtype, is_number(value) or aval.weak_type)


def _as_number(dtype: Any) -> bool | int | float | complex:
    """A Python number of the kind of a weak type, whose dtype promotion does not look at."""
    return {"b": False, "i": 0, "u": 0, "c": 0j}.get(np.dtype(dtype).kind, 0.0)


def joined(one: ArrayType, other: ArrayType) -> ArrayType | None:
    """The type of two arrays in one place; None if there is none: strong dtypes never change, nor do shapes."""
    weak = one.weak and other.weak
    if one.shape != other.shape:
        return None
    if one.dtype == other.dtype:
        return one._replace(weak=weak)
    if any(jnp.issubdtype(dtype, jax.dtypes.extended) for dtype in (one.dtype, other.dtype)):
        return None
    dtype = jnp.result_type(*(_as_number(each.dtype) if each.weak else each.dtype for each in (one, other)))
    fits = all(each.weak or each.dtype == dtype for each in (one, other))
    return ArrayType(one.shape, dtype, weak) if fits else None


def converted(value: Any, target: ArrayType) -> jax.Array:
    """A value as an array of a type that it has been joined to."""
    if target.weak:
        # Promotion with a Python number is the public way to an array of weak type.
        weak: jax.Array = jnp.where(True, value, _as_number(target.dtype))
        if weak.dtype == target.dtype:
            return weak
    return jax.lax.convert_element_type(value, target.dtype)


def value_text(value: Any) -> str:
    """A number as Python shows it, an array by its type."""
    return repr(value) if is_number(value) else array_type(value).text
