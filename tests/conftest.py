"""Eight CPU devices, one way to count traces, and programs that are compiled once.

Most of a test's time is lowering and XLA's compiler, which take half as long here; with `PARTAX_OPTIMIZED=1` both are
as for users.
"""

import mmap
import os
from importlib.util import find_spec
from pathlib import Path


def _add_flag(name: str, value: str) -> None:
    if name not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --{name}={value}".strip()


def _xla_knows(name: str) -> bool:
    """Whether the library of XLA has this name as a string that ends with a zero. XLA ends at an unknown flag."""
    package = find_spec("jaxlib")
    assert package is not None and package.origin is not None
    for library in Path(package.origin).parent.glob("*jax_common.*"):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return text.find(b"\0" + name.encode() + b"\0") >= 0
    return False


_add_flag("xla_force_host_platform_device_count", "8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if os.environ.get("PARTAX_OPTIMIZED") != "1":
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    # Children have the flag from their parent.
    if "PYTEST_XDIST_WORKER" not in os.environ and _xla_knows("xla_cpu_use_fusion_emitters"):
        _add_flag("xla_cpu_use_fusion_emitters", "false")

import gc
import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import jax
import pytest
from jax._src.interpreters import mlir
from jax.experimental.compilation_cache import compilation_cache

from compiled_names import compiled_names
from counting import TraceCounter
from meshes import mesh_of, on

# Files need it; a free-threaded Python has none.
collect_ignore = [] if find_spec("safetensors") else ["io"]
# A file with one of these names has threads.
THREADS = {"threading", "Thread", "ThreadPoolExecutor", "asyncio", "at_once"}


def _share_contexts() -> None:
    """Ten lowerings in a thread share one context of MLIR, as in newer jax: creating one takes as long as a test."""
    make, own = mlir.make_ir_context, threading.local()

    def make_ir_context() -> Any:
        left = getattr(own, "left", 0)
        if left == 0:
            own.context, left = make(), 10
        own.left = left - 1
        return own.context

    mlir.make_ir_context = make_ir_context


if os.environ.get("PARTAX_OPTIMIZED") != "1" and not hasattr(mlir, "_thread_local_context"):
    _share_contexts()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker gets the tests of a file in order, so that what they share is compiled once."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


class _Module(pytest.Module):
    """A file that needs Flax is skipped if it is not installed."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            if str(getattr(error.__cause__, "name", "")).partition(".")[0] != "flax":
                raise
            pytest.skip("Flax is not here", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    module: pytest.Module = _Module.from_parent(parent, path=module_path)
    return module


@pytest.fixture(autouse=True, scope="session")
def _hypothesis_has_its_generator() -> None:
    """Hypothesis searches the collector's objects for references to its generator, before these are frozen."""
    hypothesis: Any = sys.modules.get("hypothesis")
    if hypothesis is not None:
        hypothesis.given(hypothesis.strategies.none())(lambda _: None)()


_tests = itertools.count()


@pytest.fixture(autouse=True)
def _freeze_objects() -> None:
    """Collections, of which many tests make some, do not walk the objects of earlier tests again."""
    if next(_tests) % 20 == 0:
        gc.collect()
        gc.freeze()


@pytest.fixture
def traces() -> TraceCounter:
    return TraceCounter()


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The namespace of a module of its own, in a directory of its own, for blocks that a page shows."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("shown_blocks")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__dict__


@pytest.fixture
def devices() -> list[jax.Device]:
    """Eight CPU devices, whatever else the machine has."""
    cpus = jax.devices("cpu")
    assert len(cpus) >= 8, "conftest.py must be imported before anything initialises jax"
    return cpus[:8]


@pytest.fixture
def mesh(devices: list[jax.Device]) -> jax.sharding.Mesh:
    """All of them in one axis, `d`."""
    return mesh_of(devices)


@pytest.fixture
def split(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
    return on(mesh, "d")


@pytest.fixture
def everywhere(mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
    return on(mesh)


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """The names of what XLA compiles."""
    with compiled_names() as names:
        yield names


@pytest.fixture(scope="session")
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a worker's compilation cache."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module", autouse=True)
def _compiled_once(request: pytest.FixtureRequest, compiled_programs: Path) -> Iterator[None]:
    """Programs that several tests trace are compiled once, which saves a fifth of the time.

    Not in files with threads, which may read half-written files, in files with the mark `compiled_anew`, and with
    `PARTAX_OPTIMIZED=1`.
    """
    has_threads = not THREADS.isdisjoint(vars(request.module))
    if os.environ.get("PARTAX_OPTIMIZED") == "1" or has_threads or request.node.get_closest_marker("compiled_anew"):
        yield
        return
    options = {
        "jax_compilation_cache_dir": str(compiled_programs),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in options}

    def configure(values: dict[str, Any]) -> None:
        compilation_cache.reset_cache()
        for name, value in values.items():
            jax.config.update(name, value)

    configure(options)
    yield
    configure(before)


@pytest.fixture
def collect() -> Callable[[], None]:
    """Collects everything unreachable, also what only a finalizer releases."""

    def run() -> None:
        for _ in range(3):
            gc.collect()

    return run
