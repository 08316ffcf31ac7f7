"""Values that little can be done with."""

import jax

from trees import array


class Unhashable:
    """No pytree, and cannot be static."""

    __hash__ = None  # type: ignore[assignment]


def gone(*shape: int) -> jax.Array:
    """An array whose data nobody can read."""
    made = array(*shape)
    made.delete()
    return made
