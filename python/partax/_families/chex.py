"""Dataclasses of chex: whatever is in the dictionary of an instance is a child, in the order of the names."""

import dataclasses
import inspect
from typing import Any

from partax._families.fields import Fields
from partax._jax.nodes import registered_functions


def fields_of(cls: type) -> Fields | None:
    """The fields of a class that chex registered, mappable or not."""
    flatten, _ = registered_functions(cls) or (None, None)
    if not dataclasses.is_dataclass(cls) or not str(getattr(flatten, "__module__", "")).startswith("chex."):
        return None
    # It is asked for the one, and called for the other, whenever an instance is rebuilt.
    makes_otherwise = inspect.getattr_static(cls, "__new__") is not object.__dict__["__new__"]
    if makes_otherwise or hasattr(cls, "__post_init__"):
        return None
    fields: Any = cls.__dataclass_fields__
    return Fields(tuple(sorted(field.name for field in dataclasses.fields(cls) if field.name in fields)), ())
