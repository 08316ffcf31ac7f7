"""What a compiled program depends on in addition to the call: versions, configuration, devices, the processor."""

import glob
import hashlib
import importlib.metadata
import os
import platform
import sys
from typing import Any

import jax
import numpy as np

from partax import _core
from partax._jax.private import configuration, every_setting

_VERSION = importlib.metadata.version("partax")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_VARIABLES = ("XLA_", "TF_XLA_", "LIBTPU_", "TPU_", "CUDA_", "NVIDIA_", "EQX_", "FLAX_", "NNX_", "JAXTYPING_")
"""The beginnings of variables that the compiler and the libraries known to be pure read."""


def machine(devices: tuple[Any, ...] = ()) -> dict[str, Any]:
    """What machine code depends on, for these devices or jax's own."""
    variables = tuple(sorted((name, text) for name, text in os.environ.items() if name.startswith(_VARIABLES)))
    every = tuple(dict.fromkeys((*devices, *jax.devices())))
    kinds = sorted((device.platform, device.device_kind, device.id, device.process_index) for device in every)
    client = getattr(every[0], "client", None)
    return {
        **_BUILD,
        "the version of NumPy": np.__version__,
        "an environment variable of XLA or of a library": variables,
        "a device": (kinds, getattr(client, "platform_version", "")),
        "the number of processes": (jax.process_index(), jax.process_count()),
    }


def environment(devices: tuple[Any, ...]) -> dict[str, Any]:
    """All that a program on these devices depends on, by name, as plain values."""
    return {
        **machine(devices),
        **{f"the setting {name}": value for name, value in every_setting()},
        "jax's configuration": tuple(sorted(configuration().items())),
    }


def _build() -> dict[str, Any]:
    files = [_core.__file__]  # also tells builds of one version apart
    if ".dev" in _VERSION:
        files += sorted(glob.glob(os.path.join(_PACKAGE, "**", "*.py"), recursive=True))
    digest = hashlib.sha256(_VERSION.encode())
    for name in files:
        with open(name, "rb") as file:
            digest.update(file.read())
    return {
        "the version of Python": (sys.version, sys.implementation.cache_tag, sys.flags.optimize),
        "the version of jax": (jax.__version__, importlib.metadata.version("jaxlib")),
        "the version of partax": digest.hexdigest(),
        "the processor": _processor(),
    }


def _processor() -> str:
    """The features of the processor, for which XLA compiles."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    return platform.machine() + " " + " ".join(sorted(line.partition(":")[2].split()))
    except OSError:
        pass
    return f"{platform.machine()} {platform.processor()}"


_BUILD = _build()
