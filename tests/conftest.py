"""Guards every promise: eight CPU devices, warnings as errors, and one way to count traces."""

from __future__ import annotations

import os

_DEVICES = "--xla_force_host_platform_device_count"
if _DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_DEVICES}=8".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import gc
from collections.abc import Callable

import jax
import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "error")


class TraceCounter:
    """Counts how often a Python body runs: call ``tick()`` in the body, read ``count``."""

    def __init__(self) -> None:
        self.count = 0

    def tick(self) -> None:
        self.count += 1


@pytest.fixture
def traces() -> TraceCounter:
    return TraceCounter()


@pytest.fixture
def devices() -> list[jax.Device]:
    """Eight CPU devices, whatever else the machine has."""
    found = jax.devices("cpu")
    assert len(found) >= 8, "conftest.py must be imported before anything initialises jax"
    return found[:8]


@pytest.fixture
def collect() -> Callable[[], None]:
    """Everything unreachable is gone afterwards, also what only a finalizer let go of."""

    def run() -> None:
        for _ in range(3):
            gc.collect()

    return run
