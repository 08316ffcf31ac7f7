"""What a file of results names along with its figures: commit, date, versions, and the machine; no host and no path."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MEASURED = ("python", "csrc", "CMakeLists.txt", "bench", ":(exclude)bench/results")
"""What the figures depend on; the results themselves are written there too."""


def of(libraries: Iterable[str], *, quick: bool) -> dict[str, Any]:
    """The head of a file of results. `libraries`: whose versions matter, besides jax and partax."""
    import jax

    return {
        **commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {"python": platform.python_version(), **versions(("partax", "jax", "jaxlib", *libraries))},
        "machine": machine(),
        "device": jax.devices()[0].device_kind,
        "quick": quick,
    }


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Of those that are installed."""
    found: dict[str, str] = {}
    for library in libraries:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[library] = importlib.metadata.version(library)
    return found


def commit() -> dict[str, Any]:
    """The commit, and whether the code differs from it; "unknown" outside of a clone."""
    try:
        found, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", *MEASURED)
    except (OSError, subprocess.CalledProcessError):
        return {"commit": "unknown", "changed": None}
    return {"commit": found, "changed": bool(changes)}


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    """The kind of system and processor."""
    return {"system": f"{platform.system()} {platform.machine()}", "cpu": _cpu(), "cores": _cores()}


def _cpu() -> str:
    with contextlib.suppress(OSError):  # Linux
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    with contextlib.suppress(OSError, subprocess.CalledProcessError):  # macOS
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return platform.processor() or platform.machine()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
