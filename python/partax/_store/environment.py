"""What a compiled program depends on beside the call: versions, configuration, devices, the processor."""

import functools
import hashlib
import os
import platform
import sys
from typing import Any

import jax
import jaxlib
import numpy as np

import partax._core as _core
from partax._jax.settings import every_setting


def environment(device: Any) -> tuple[Any, ...]:
    """All of it now, as plain values."""
    flags = tuple(sorted((name, text) for name, text in os.environ.items() if name.startswith(("XLA_", "LIBTPU_"))))
    devices = (device.platform, device.device_kind, device.id, len(jax.devices()), jax.process_index())
    client = getattr(device, "client", None)
    return (
        *(_build(), flags, devices, jax.process_count(), getattr(client, "platform_version", "")),
        *(every_setting(), np.__version__),
    )


@functools.cache
def _build() -> tuple[str, ...]:
    """What does not change in a process."""
    with open(_core.__file__, "rb") as file:  # also tells builds of one version apart
        build = hashlib.sha256(file.read()).hexdigest()
    return (sys.version, sys.implementation.cache_tag, jax.__version__, jaxlib.__version__, build, _processor())


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
