"""Where arrays are, in words: two of them are alike if one executable serves both."""

import functools
import zlib
from typing import Any

import jax

from partax._jax.private import context_mesh

_SHOWN_RUNS = 8


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
    runs: list[tuple[int, int]] = []
    for number in (device.id for device in devices):
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    if len(texts) > _SHOWN_RUNS:  # a number stands for the rest, as these texts are compared
        texts[_SHOWN_RUNS:] = [f"... (order {zlib.crc32(','.join(texts).encode()):x})"]
    return f"{text} on devices {', '.join(texts)}"
