"""Where arrays are, in words: two of them are alike if one executable serves both."""

import functools
import zlib
from typing import Any

import jax

from partax._jax.private import context_mesh

_LONGEST = 40


@functools.lru_cache(256)
def sharding_text(sharding: Any) -> str:
    """A sharding with its devices, where they are not the first ones in their order."""
    if isinstance(sharding, jax.sharding.NamedSharding) and isinstance(sharding.mesh, jax.sharding.AbstractMesh):
        return f"{sharding.spec} of {_mesh_text(sharding.mesh)}"
    usual = next(iter(sharding.device_set)).default_memory().kind
    memory = f" in {sharding.memory_kind}" if sharding.memory_kind not in (None, usual) else ""
    if isinstance(sharding, jax.sharding.NamedSharding):
        return f"{sharding.spec} of {_mesh_text(sharding.mesh)}{memory}"
    devices = sorted(map(str, sharding.device_set))
    return (devices[0] if len(devices) == 1 else f"{type(sharding).__name__} on {len(devices)} devices") + memory


def context_text() -> str:
    """The mesh with devices that `jax.set_mesh` has set; empty where there is none."""
    mesh = context_mesh()
    return "" if mesh is None else _mesh_text(mesh)


def _mesh_text(mesh: Any) -> str:
    text = f"mesh {dict(mesh.shape)}"
    if isinstance(mesh, jax.sharding.AbstractMesh):
        return text
    devices: list[Any] = mesh.devices.flatten().tolist()
    if devices == jax.devices(devices[0].platform)[: len(devices)]:
        return text
    numbers = ", ".join(str(device.id) for device in devices)
    if len(numbers) > _LONGEST:  # a number stands for the rest, as these texts are compared
        numbers = f"{numbers[:_LONGEST]}... (order {zlib.crc32(numbers.encode()):x})"
    return f"{text} on devices {numbers}"
