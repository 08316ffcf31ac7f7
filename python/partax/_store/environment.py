"""What a compiled program depends on in addition to the call: versions, configuration, devices, the processor."""

import contextlib
import functools
import glob
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import sys
from typing import Any

import jax
import numpy as np

from partax import _core
from partax._families.installed import real_path
from partax._jax.private import configuration, every_setting
from partax._store import UnstoredError

_VERSION = importlib.metadata.version("partax")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_VARIABLES = ("XLA_", "TF_XLA_", "LIBTPU_", "TPU_", "CUDA_", "NVIDIA_", "EQX_", "FLAX_", "NNX_", "JAXTYPING_")
"""The beginnings of variables that the compiler and the libraries known to be pure read."""


def machine(devices: tuple[Any, ...] = ()) -> dict[str, Any]:
    """What machine code depends on, for these devices or jax's own."""
    variables = tuple(sorted((name, text) for name, text in os.environ.items() if name.startswith(_VARIABLES)))
    every = tuple(dict.fromkeys((*devices, *jax.devices())))
    kinds = sorted((device.platform, device.device_kind, device.id, device.process_index) for device in every)
    return {
        **_BUILD,
        "the version of NumPy": np.__version__,
        "an environment variable of XLA or of a library": variables,
        "a device": (kinds, every[0].client.platform_version),
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
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                return platform.machine() + " " + " ".join(sorted(line.partition(":")[2].split()))
    return f"{platform.machine()} {platform.processor()}"


_BUILD = _build()


# ---- Libraries

_NAME = re.compile(r"[\w.-]+")


def versions(library: str) -> tuple[str, ...]:
    """Names with versions and a digest of what was installed: of an imported library, and all that it requires. Raise
    if it has none, may change in place, or is not what is imported.
    """
    version_by_name: dict[str, str] = {}
    waiting = [_distribution_of(library)]
    _, directory, _ = _installed(waiting[0])
    file = getattr(sys.modules.get(library), "__file__", None)  # None of one that several distributions share
    if not isinstance(file, str) or not str(real_path(file)).startswith(directory):
        raise UnstoredError(f"something of `{library}`, whose imported copy is not the installed one")
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in version_by_name or name == "partax":  # whose files are read
            continue
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # for another system, or another Python
            version_by_name[name], _, required = _installed(name)
            waiting += required
    return tuple(sorted(f"{name} {version}" for name, version in version_by_name.items()))


@functools.cache
def _distribution_of(library: str) -> str:
    try:
        importlib.metadata.distribution(library)
    except importlib.metadata.PackageNotFoundError:
        distributions = importlib.metadata.packages_distributions().get(library)
        if not distributions:
            raise UnstoredError(f"something of `{library}`, whose version is unknown") from None
        return distributions[0]
    return library


@functools.cache  # one that is installed again meanwhile is not what the process has imported
def _installed(name: str) -> tuple[str, str, list[str]]:
    """The version with a digest of what was installed, the directory, and the names of what it requires."""
    distribution = importlib.metadata.distribution(name)
    origin = distribution.read_text("direct_url.json") or "{}"
    if json.loads(origin).get("dir_info", {}).get("editable", False):
        raise UnstoredError(f"something of `{name}`, which is installed in place and may change")
    record = (distribution.read_text("RECORD") or "").splitlines()
    # Without what differs wherever it is installed.
    files = sorted(line for line in record if not (".dist-info/" in line or ".pyc," in line or "../" in line))
    # Its long description is not read, which takes ten times as long.
    header = (distribution.read_text("METADATA") or "").partition("\n\n")[0].splitlines()
    version = next((line for line in header if line.startswith("Version:")), "")
    digest = hashlib.blake2b("\n".join((origin, *files)).encode(), digest_size=20).hexdigest()
    required = (line.partition(":")[2] for line in header if line.startswith("Requires-Dist:"))
    names = [_NAME.findall(line)[0] for line in required if "extra ==" not in line]
    return f"{version} {digest}", real_path(str(distribution.locate_file(""))), names
