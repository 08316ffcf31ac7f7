"""Whether a `jax.sharding.PartitionSpec` fits an array and a mesh, and why not."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jax.sharding import PartitionSpec


def names_in(entry: Any) -> tuple[Any, ...]:
    """The mesh axes that an entry of a spec names."""
    if entry is None or entry is PartitionSpec.UNCONSTRAINED:
        return ()
    return tuple(entry) if isinstance(entry, (tuple, list)) else (entry,)


def misfit_text(shape: Sequence[int], spec: Any, sizes: Mapping[Any, int]) -> str | None:
    """The reason why an array cannot have a spec on mesh axes of these sizes, or None."""
    names = [name for entry in spec for name in names_in(entry)]
    for i, name in enumerate(names):
        if name not in sizes:
            return f"it names the axis {name!r}, and the axes that it may name are {', '.join(map(repr, sizes))}"
        if name in names[:i]:
            return f"it names the mesh axis {name!r} twice"
    if len(spec) > len(shape):
        entries, axes = ("entry" if len(spec) == 1 else "entries"), ("axis" if len(shape) == 1 else "axes")
        return f"it has {len(spec)} {entries}, and the array {len(shape) or 'no'} {axes}"
    for i, entry in enumerate(spec):
        number = math.prod(sizes[name] for name in names_in(entry))
        if shape[i] % number:
            return f"axis {i} of size {shape[i]} cannot be divided into {number} equal parts, along {names_in(entry)}"
    return None
