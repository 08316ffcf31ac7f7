"""Meshes of devices, and shardings on them."""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

Auto, Explicit = AxisType.Auto, AxisType.Explicit


def mesh_of(devices: Any, *sizes: int, names: tuple[str, ...] = ("d",), kind: AxisType = Auto) -> Mesh:
    return Mesh(np.array(devices).reshape(sizes or (-1,)), names, axis_types=(kind,) * len(names))


def on(mesh: Mesh, *spec: Any) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*spec))


def has(x: jax.Array, sharding: Any) -> bool:
    return x.sharding.is_equivalent_to(sharding, x.ndim)
