"""The functions of `jax.tree`, and of Equinox for trees, in C++: on any pytree, with a path in every error.

`map`, `map_with_path`, `leaves`, `flatten`, `unflatten` and `structure` do what those of `jax.tree` do; `at`, `equal`
and `pformat` what `equinox.tree_at`, `tree_equal` and `tree_pformat` do.
"""

from partax._core import Structure
from partax._pytree.as_equinox import at, equal, pformat
from partax._pytree.every_leaf import flatten, leaves, map, map_with_path, structure, unflatten

__all__ = ["Structure", "at", "equal", "flatten", "leaves", "map", "map_with_path", "pformat", "structure", "unflatten"]
