"""The only file that uses names of jax that are not public; each has a public fallback."""

from typing import Any

import jax


def registered_nodes() -> dict[type, Any] | None:
    """jax's dictionary of registered node types, or None where this jax has none.

    Its length tells when a class has been registered after partax saw it as a leaf. Without it, a class has to be
    registered before its first use in a filtered call.
    """
    try:
        from jax._src.tree_util import _registry
    except ImportError:
        return None
    return _registry if isinstance(_registry, dict) else None


def concrete_array_type() -> type:
    """The type of concrete arrays, `jaxlib`'s ArrayImpl.

    The fallback finds it by making an array, which starts jax's backends.
    """
    try:
        from jax._src.array import ArrayImpl
    except ImportError:
        return type(jax.numpy.zeros(()))
    return ArrayImpl


def ref_types() -> tuple[type, ...]:
    """The types of mutable array references, which jax.jit traces though they are no `jax.Array`."""
    public = getattr(jax, "Ref", None) or getattr(getattr(jax, "ref", None), "Ref", None)
    if isinstance(public, type):
        return (public,)
    try:
        from jax._src.core import Ref
    except ImportError:
        return ()
    return (Ref,) if isinstance(Ref, type) else ()


def is_committed(array: jax.Array) -> bool:
    """Whether an array is bound to its devices; True where this jax does not tell."""
    return bool(getattr(array, "_committed", True))
