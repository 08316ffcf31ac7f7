"""Guards the promise that what a script called first is loaded while it makes its arguments, and is never another's."""

import concurrent.futures
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_store import process

from partax._store import ahead
from partax._store.folder import Folder
from stored import until

pytestmark = pytest.mark.compiled_anew

SCRIPT = """
import os, pathlib, sys, threading, warnings
import jax, jax.numpy as jnp, partax

@partax.filter_jit
def first(x): return x * 2

@partax.filter_jit
def second(x): return x + 1

warnings.simplefilter("ignore", partax.RetraceWarning)
def multiple(k): return partax.filter_jit(lambda x: x * k)

def is_loading(): return [it for it in threading.enumerate() if it.name == "partax load ahead"]

x = jax.jit(lambda: jnp.arange(3.0))()  # compiles, as what makes a model does
for thread in is_loading():
    thread.join()
for program in pathlib.Path(os.environ["PARTAX_STORE"]).glob(sys.argv[1]):
    program.unlink()
print(first(x).tolist(), second(x).tolist(), first.cache_info().loads, second.cache_info().loads, end=" ")
more = [multiple(k) for k in range(20)]
assert all((each(x) == x * k).all() for k, each in enumerate(more))
print(sum(each.cache_info().loads for each in more))
"""
RIGHT = "[0.0, 2.0, 4.0] [1.0, 2.0, 3.0]"


@pytest.mark.slow
def test_all_that_a_script_called_is_loaded_before_it_is_called_again(tmp_path: Path) -> None:
    store = tmp_path / "programs"
    for delete, loads in (("none", "0 0 0"), ("*.partax", "1 1 20")):  # from memory where no file is left
        assert process(SCRIPT, tmp_path, delete, PARTAX_STORE=str(store))[0] == f"{RIGHT} {loads}"
    (noted,) = store.glob(".*.list")
    noted.write_bytes(b"\xff\xfe../script nothing")  # it is a hint
    assert process(SCRIPT, tmp_path, "none", PARTAX_STORE=str(store))[0] == f"{RIGHT} 0 0 0"
    assert len(json.loads(noted.read_text())["programs"]) == 22, "it is written again"


@pytest.mark.slow
def test_what_has_changed_is_not_the_one_that_was_loaded(tmp_path: Path) -> None:
    store = str(tmp_path / "programs")
    process(SCRIPT, tmp_path, "none", PARTAX_STORE=store)
    printed, _ = process(SCRIPT.replace("x * 2", "x * 3.0"), tmp_path, "none", PARTAX_STORE=store)
    assert printed == "[0.0, 3.0, 6.0] [1.0, 2.0, 3.0] 0 1 20"


@pytest.mark.slow
def test_another_script_loads_what_it_called_itself(tmp_path: Path) -> None:
    store, other = tmp_path / "programs", tmp_path / "other"
    other.mkdir()
    process(SCRIPT, tmp_path, "none", PARTAX_STORE=str(store))
    for loads in ("0 0 0", "1 1 20"):
        assert process(SCRIPT, other, "*.partax", PARTAX_STORE=str(store))[0] == f"{RIGHT} {loads}"
    assert len([*store.glob(".*.list")]) == 2


SLOW_LOADS = """
import os, sys, time, warnings
import jax, jax.numpy as jnp, partax
from partax._store.records import Loading
load = Loading._load
def slow(self, devices):
    print("load", flush=True)
    time.sleep(0.5)
    return load(self, devices)
if sys.argv[1] == "slow":
    Loading._load = slow
    jax.jit(lambda: jnp.arange(3.0))()
    sys.exit()
warnings.simplefilter("ignore", partax.RetraceWarning)
for k in range(12):
    partax.filter_jit(lambda x, k=k: x * k)(jnp.arange(3.0))
"""


@pytest.mark.slow
def test_a_process_that_ends_waits_for_one_load(tmp_path: Path) -> None:
    process(SLOW_LOADS, tmp_path, "store", PARTAX_STORE=str(tmp_path / "programs"))
    assert process(SLOW_LOADS, tmp_path, "slow", PARTAX_STORE=str(tmp_path / "programs"))[0] in ("", "load")


NAMES = [f"{number:040x}-0-0" for number in range(40)]


class FakeLoading:
    """A load that ends when the test says so."""

    begun: dict[str, "FakeLoading"]

    def __init__(self, folder: Folder, name: str, devices: Any) -> None:
        self.size = 0
        self.program: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.begun[name] = self

    def end(self, size: int = 1) -> None:
        self.size = size
        self.program.set_result(None)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ahead.Ahead]:
    """A run whose script called `NAMES` last time."""
    monkeypatch.setattr(ahead, "Loading", FakeLoading)
    FakeLoading.begun = {}
    folder = Folder(tmp_path, 1 << 30)
    for name in NAMES:
        folder.write(name, b"a program")
    run = ahead.ahead_of(folder)
    folder.write_list(run._list, json.dumps({"programs": NAMES, "calls": []}))
    run.load_more()
    yield run
    run.end()
    for loading in FakeLoading.begun.values():
        if not loading.program.done():
            loading.end()


def has_begun(*names: str) -> None:
    until(lambda: list(FakeLoading.begun) == list(names))


def test_programs_are_loaded_one_by_one_and_that_of_a_call_at_once(run: ahead.Ahead) -> None:
    has_begun(NAMES[0])
    wanted: Any = run.take(NAMES[7], ())
    assert wanted is FakeLoading.begun[NAMES[7]]
    FakeLoading.begun[NAMES[0]].end()
    time.sleep(0.05)
    has_begun(NAMES[0], NAMES[7])
    wanted.end()
    has_begun(NAMES[0], NAMES[7], NAMES[1])
    assert run.take(NAMES[0], ()) is FakeLoading.begun[NAMES[0]]


def test_so_many_bytes_wait_for_their_calls(run: ahead.Ahead) -> None:
    has_begun(NAMES[0])
    FakeLoading.begun[NAMES[0]].end(ahead._LARGEST)
    until(lambda: not run._is_loading)
    has_begun(NAMES[0])
    run.take(NAMES[0], ())
    has_begun(NAMES[0], NAMES[1])


def test_a_run_that_calls_other_programs_loads_no_more(run: ahead.Ahead) -> None:
    for count, name in enumerate(NAMES[:10], 1):
        has_begun(*NAMES[:count])
        if count == 10:
            run.take(NAMES[30], ())
            run.note(NAMES[30], ())
        FakeLoading.begun[name].end()
    FakeLoading.begun[NAMES[30]].end()
    until(lambda: not run._is_loading)
    has_begun(*NAMES[:10], NAMES[30])


@pytest.mark.parametrize("text", ["", "[]", "{", '{"programs": [1]}', '{"programs": [], "calls": [1]}', "[" * 9999])
def test_a_damaged_list_is_empty(text: str) -> None:
    assert ahead.read_run(text) == ([], {})


def test_a_list_names_no_file_elsewhere() -> None:
    assert ahead.read_run('{"programs": ["../a", "0a-1-2", "/etc"], "calls": []}') == (["0a-1-2"], {})
