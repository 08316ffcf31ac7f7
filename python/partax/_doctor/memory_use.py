"""How much memory a program takes, and how much there is."""

import os
from typing import Any

import jax

from partax._doctor.examined import Examined
from partax._doctor.liveness import live_bytes


def peak_bytes(examined: Examined) -> int:
    """The most bytes that live at once: XLA's figure where the program is compiled, else an estimate."""
    found = None if examined.compiled is None else examined.compiled.memory_analysis()
    if found is None:
        return live_bytes(examined).peak
    taken = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return taken - found.alias_size_in_bytes


def memory_limit(examined: Examined) -> int | None:
    """The bytes that a program may take: as the user says, or those of the device; None where nobody knows."""
    told = told_limit(examined)
    if told is not None or jax.local_devices()[0].platform != "cpu":
        return told
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not of this system
        return None


def told_limit(examined: Examined) -> int | None:
    """The same, but for the memory of the machine."""
    if examined.memory_limit is not None:
        return examined.memory_limit
    return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")


def is_spread(examined: Examined) -> bool:
    """Whether an array of the arguments is on several devices."""

    def count(leaf: Any) -> int:
        return len(getattr(getattr(leaf, "sharding", None), "device_set", ()))

    return any(count(leaf) > 1 for leaf in jax.tree.leaves((examined.args, examined.kwargs)))
