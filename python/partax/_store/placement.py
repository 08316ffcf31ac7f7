"""What a program is compiled for: the arrays of a call, how they lie, and on which devices."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import PartitionSpec, Sharding, SingleDeviceSharding

from partax._jax.private import configuration, mesh_of_call, names_configuration, shared_values
from partax._jit.options import Options
from partax._jit.placed_target import default_device
from partax._jit.shardings import is_sharding_leaf
from partax._store import UnstoredError
from partax._store.content import dtype_content, layout_content, placement_content


class Signature(NamedTuple):
    devices: tuple[Any, ...]  # all that some array is on, in the order in which they are met
    arrays: tuple[Any, ...]  # the mesh that is set, and for each array what a program is compiled for
    is_shared: bool  # it is a program over the devices of several processes


def signature(leaves: tuple[Any, ...], options: Options) -> Signature:
    """What a program for these arrays is compiled for, if another process could say how they lie."""
    if not names_configuration():
        raise UnstoredError("this jax does not tell its configuration by name")
    if configuration().get("mesh_context_manager") is not None:
        raise UnstoredError("inside `with mesh:`, where `jax.set_mesh(mesh)` would tell which devices it has")
    mesh = mesh_of_call()
    devices: dict[Any, None] = {} if mesh is None else dict.fromkeys(mesh.devices.flat)
    arrays: list[Any] = [None if mesh is None else placement_content(mesh)]
    option_devices = of_options(options)[1]
    asked = () if options.in_shardings is None else option_devices
    for leaf in leaves:
        if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)):
            is_array = isinstance(leaf, jax.Array)
            if is_array and leaf.is_deleted():
                raise UnstoredError("an array is deleted")
            is_committed = leaf.committed if is_array else leaf.sharding is not None
            kind = (leaf.shape, dtype_content(leaf), getattr(leaf, "weak_type", False), is_committed)
            leaf_devices: dict[Any, None] = {}
            sharding = _sharding(leaf.sharding or SingleDeviceSharding(default_device()), leaf_devices)
            arrays.append((*kind, layout_content(leaf), sharding))
            if asked and is_committed and tuple(leaf_devices) != asked:  # which a compiled program refuses
                raise UnstoredError("in_shardings moves an array to other devices, or has them in another order")
            devices |= leaf_devices
        elif isinstance(leaf, (np.ndarray, np.generic, bool, int, float, complex)):
            aval = jax.typeof(leaf)
            arrays.append((type(leaf).__name__, aval.shape, str(aval.dtype), aval.weak_type))
        else:
            raise UnstoredError(f"a `{type(leaf).__name__}` among the arrays")
    is_shared = any(device.process_index != jax.process_index() for device in (*devices, *option_devices))
    return Signature(tuple(devices) or (default_device(),), tuple(arrays), is_shared)


def of_options(options: Options) -> tuple[Any, tuple[Any, ...]]:
    """The shardings that a wrapper asks for, as plain values, and their devices."""
    devices: dict[Any, None] = {}
    prefixes = (options.in_shardings, options.out_shardings)
    leaves, structure = jax.tree.flatten(prefixes, is_leaf=lambda entry: entry is not None and is_sharding_leaf(entry))
    return (str(structure), tuple([_sharding(leaf, devices) for leaf in leaves])), tuple(devices)


def _sharding(sharding: Any, devices: dict[Any, None]) -> Any:
    """As plain values; adds its devices."""
    if isinstance(sharding, PartitionSpec):
        return repr(sharding)
    if isinstance(sharding, Sharding) and not sharding.is_fully_addressable and shared_values() is None:
        raise UnstoredError("arrays over several processes, which `jax.distributed` has not connected")
    content = placement_content(sharding)
    if content is None:
        raise UnstoredError(f"a `{type(sharding).__name__}`, which partax does not know")
    mesh: Any = getattr(sharding, "mesh", None)
    devices |= dict.fromkeys(sharding.device_set if mesh is None else mesh.devices.flat)
    return content
