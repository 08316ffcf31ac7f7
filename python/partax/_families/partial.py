"""`jax.tree_util.Partial`: what it binds are its children, the function is its aux data."""

import jax

from partax._families.fields import Fields


def fields_of(cls: type) -> Fields | None:
    """The fields of a partial, which has slots for all of it."""
    return Fields(("args", "keywords"), ("func",), is_partial=True) if cls is jax.tree_util.Partial else None
