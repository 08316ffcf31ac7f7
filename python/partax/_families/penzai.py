"""Structs of penzai: dataclasses whose fields are children but for those that are marked."""

import dataclasses
import inspect
import sys
from typing import Any

from partax._families.fields import Fields

_METHODS = ("tree_flatten", "tree_flatten_with_keys", "tree_unflatten", "from_attributes")


def fields_of(cls: type) -> Fields | None:
    """The fields of a struct that does not override how it is taken apart and made."""
    struct: Any = getattr(sys.modules.get("penzai.core.struct"), "Struct", None)
    if struct is None or not issubclass(cls, struct) or not dataclasses.is_dataclass(cls):
        return None
    if any(inspect.getattr_static(cls, name) is not inspect.getattr_static(struct, name) for name in _METHODS):
        return None
    fields = dataclasses.fields(cls)
    children = tuple(field.name for field in fields if field.metadata.get("pytree_node", True))
    return Fields(children, tuple(field.name for field in fields if field.name not in children))
