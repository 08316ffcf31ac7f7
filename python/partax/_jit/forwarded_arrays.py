"""Arrays that a call gives back as they came: on which devices, and the errors where one is deleted or given away."""

from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import PartitionSpec

from partax import _core
from partax._jax.private import runs_without_jit, under_trace

_USED = "use a buffer that was previously donated in the same call to Execute()"
_TWICE = "donate the same buffer twice in Execute()"


def to_device(value: Any, inputs: tuple[Any, ...]) -> jax.Array:
    """A forwarded NumPy input as jax.jit would return it: on the devices of the call's committed arrays.

    Called by the native wrapper.
    """
    if isinstance(value, (int, float, complex)) and not isinstance(value, np.generic):
        value = jax.numpy.asarray(value)  # of a weak type
    else:
        value = np.array(value)  # a copy: on the CPU jax would share the user's memory, which may change later
    for array in inputs:
        if isinstance(array, Tracer) or not isinstance(array, jax.Array) or not array.committed:
            continue
        sharding = array.sharding
        if isinstance(sharding, jax.sharding.NamedSharding):
            sharding = jax.sharding.NamedSharding(sharding.mesh, PartitionSpec())
        elif len(sharding.device_set) > 1:
            continue
        return jax.device_put(value, sharding)
    return jax.numpy.asarray(value)


def refuse_lost(target: Any, leaves: tuple[Any, ...], donated: bytes) -> None:
    """Raises if the program of a call gives back what is deleted or what it donates. Called by the native wrapper."""
    if runs_without_jit():
        return
    forwarded, _ = _core.output_info(target.trace(*leaves).out_info)
    for i in sorted(forwarded):
        if isinstance(leaves[i], Tracer) or not isinstance(leaves[i], jax.Array):
            continue
        if leaves[i].is_deleted():
            raise _deleted(target, leaves, i)
        if _donation_of(leaves, donated, i) is not None and not under_trace():
            raise _given_away(target, leaves, donated, i)


def raise_lost(target: Any, leaves: tuple[Any, ...], donated: bytes, index: int, was_there: bool) -> None:
    """Raises for a leaf that a call should give back, and that is deleted now. Called by the native wrapper."""
    if runs_without_jit():
        return
    given_away = (was_there and any(donated)) or _donation_of(leaves, donated, index) is not None
    raise _given_away(target, leaves, donated, index) if given_away else _deleted(target, leaves, index)


def _donation_of(leaves: tuple[Any, ...], donated: bytes, index: int) -> int | None:
    """The donated leaf that is the same array."""
    return next((i for i, leaf in enumerate(leaves) if donated[i : i + 1] == b"\1" and leaf is leaves[index]), None)


def _path(target: Any, index: int) -> str:
    return target.__wrapped__.__signature__.names[index]


def _deleted(target: Any, leaves: tuple[Any, ...], index: int) -> Exception:
    error = RuntimeError(f"Array has been deleted with shape={jax.typeof(leaves[index]).str_short()}.")
    error.add_note(f"partax: it is `{_path(target, index)}`, which the function returns")
    return error


def _given_away(target: Any, leaves: tuple[Any, ...], donated: bytes, index: int) -> Exception:
    first = _donation_of(leaves, donated, index)
    places = f"`{_path(target, index)}`" + (f", first use: `{_path(target, first)}`" if first is not None else "")
    if index in target.__wrapped__.to_donate:
        what, example = _TWICE, "f(donate(a), donate(a))"
    else:
        what, example = _USED, "f(donate(a), a)"
    return jax.errors.JaxRuntimeError(
        f"INVALID_ARGUMENT: Attempt to {what} ({places}). Toy example for this bug: `{example}`."
    )
