"""What a compiled program depends on beside the call: versions, configuration, devices, the processor."""

import functools
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
from partax._jax.private import configuration
from partax._jax.settings import every_setting

_VERSION = importlib.metadata.version("partax")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def environment(device: Any) -> tuple[Any, ...]:
    """All of it now, as plain values."""
    flags = tuple(sorted((name, text) for name, text in os.environ.items() if name.startswith(("XLA_", "LIBTPU_"))))
    devices = (device.platform, device.device_kind, device.id, len(jax.devices()), jax.process_index())
    client = getattr(device, "client", None)
    return (
        *(_build(), flags, devices, jax.process_count(), getattr(client, "platform_version", "")),
        *(every_setting(), tuple(sorted(configuration().items())), np.__version__),
    )


@functools.cache
def _build() -> tuple[str, ...]:
    """What does not change in a process."""
    files = [_core.__file__]  # also tells builds of one version apart
    if ".dev" in _VERSION:
        files += sorted(glob.glob(os.path.join(_PACKAGE, "**", "*.py"), recursive=True))
    digest = hashlib.sha256(_VERSION.encode())
    for name in files:
        with open(name, "rb") as file:
            digest.update(file.read())
    build = digest.hexdigest()
    return (
        sys.version,
        sys.implementation.cache_tag,
        jax.__version__,
        importlib.metadata.version("jaxlib"),
        build,
        _processor(),
    )


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
