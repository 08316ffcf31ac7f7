"""Guards every promise: eight CPU devices, warnings as errors, one way to count traces, and which tests round."""

from __future__ import annotations

import os

_DEVICES = "--xla_force_host_platform_device_count"
if _DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_DEVICES}=8".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import gc
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType

import jax
import pytest

# What compares numbers that two programs have rounded.
COMPARE = {"assert_close", "assert_allclose", "allclose"}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "error")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and _rounds(item.function, set()):
            item.add_marker("rounds")


def _rounds(function: FunctionType, seen: set[FunctionType]) -> bool:
    """Whether the code of a test, or of a function of its file that it names, names one of `COMPARE`."""
    seen.add(function)
    names = _names(function.__code__)
    helpers = [function.__globals__.get(name) for name in names]
    return not COMPARE.isdisjoint(names) or any(
        _rounds(helper, seen)
        for helper in helpers
        if isinstance(helper, FunctionType) and helper.__module__ == function.__module__ and helper not in seen
    )


def _names(code: CodeType) -> set[str]:
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


_tests = itertools.count()


@pytest.fixture(autouse=True)
def _what_is_here_stays() -> None:
    """What earlier tests have left is not walked again by each collection, of which many tests make some."""
    if next(_tests) % 20 == 0:
        gc.collect()
        gc.freeze()


class _Ticks(logging.Filter):
    """Counts the records of a logger, and lets none through."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        self.count += 1
        return False


class TraceCounter:
    """Counts how often a Python body runs: call ``tick()`` in the body, read ``count``.

    The count is the standard library's, so that a function which ticks reads nothing that changes.
    """

    def __init__(self) -> None:
        self.name = f"tests.ticks.{threading.Thread().name}"  # a number of its own, which the standard library counts
        logging.getLogger(self.name).addFilter(_Ticks())

    def tick(self) -> None:
        logging.getLogger(self.name).critical("")

    @property
    def count(self) -> int:
        return logging.getLogger(self.name).filters[0].count  # type: ignore[union-attr]

    @count.setter
    def count(self, count: int) -> None:
        logging.getLogger(self.name).filters[0].count = count  # type: ignore[union-attr]


@pytest.fixture
def traces() -> Iterator[TraceCounter]:
    counter = TraceCounter()
    yield counter
    logging.getLogger(counter.name).filters.clear()


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
