"""How much memory a program takes, and how much there is."""

import os
from typing import Any

import jax

from partax._doctor.equations import bytes_of
from partax._doctor.examined import Examined
from partax._doctor.liveness import live_bytes

_SOON_COMPILED = 200  # equations
_SOON_COMPILED_BYTES = 16 << 20  # of captured arrays
# Of the platforms on which a small program is compiled to see what it takes; a GPU's runs what it chooses between.
_COMPILER_OPTIONS: dict[str, dict[str, Any]] = {"cpu": {}, "gpu": {"xla_gpu_autotune_level": 0}}


def peak_bytes(examined: Examined) -> int:
    """The most bytes that live at once: XLA's figure where the program is compiled, else an estimate."""
    peak = peak_of(examined.compiled)
    return live_bytes(examined).peak if peak is None else peak


def peak_of(compiled: Any) -> int | None:
    """XLA's figure of the most bytes that live at once; None where it has none, or nothing is compiled."""
    found = compiled and compiled.memory_analysis()
    if not found or (jax.default_backend() == "cpu" and _hides_buffers(compiled.as_text())):
        return None
    taken = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return taken - found.alias_size_in_bytes


def _hides_buffers(hlo: str) -> bool:
    """Whether a library of the CPU computes products in one piece with what follows, whose buffers XLA does not count.

    YNNPACK does so, with a whole attention for one.
    """
    inner = "\n".join(part for part in hlo.split("\n\n") if not part.startswith("ENTRY"))
    return "kind=kCustom" in hlo and any(" dot(" in line and "ROOT" not in line for line in inner.splitlines())


def compiled_for_figures(examined: Examined) -> Any:
    """The compiled program, if it is compiled or can be in little time; None otherwise."""
    if examined.compiled is not None or examined.traced is None:
        return examined.compiled
    captured = sum(map(bytes_of, examined.jaxpr.consts))
    is_small = len(examined.equations) <= _SOON_COMPILED and captured <= _SOON_COMPILED_BYTES
    options = _COMPILER_OPTIONS.get(jax.default_backend())
    if not is_small or options is None:
        return None
    try:
        return examined.traced.lower().compile(compiler_options=options)
    except Exception:  # what needs its own devices or handlers
        return None


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
    shardings = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves((examined.args, examined.kwargs)))
    return any(len(getattr(it, "device_set", ())) > 1 for it in shardings)
