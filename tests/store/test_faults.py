"""Guards the promise that whatever becomes of the folder costs a trace at most: damage, full disks, kills, writers.

`PARTAX_FAULTS=1000` damages so many files, and does of all else what takes minutes.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from user_modules import IS_SHORT, NAME, SOURCE, assert_right, damaged, run, writer

import partax
from partax._store.folder import Folder
from short_programs import imported
from stored import written

pytestmark = pytest.mark.compiled_anew


def test_a_damaged_file_is_traced_anew_and_written_anew(tmp_path: Path) -> None:
    assert run(SOURCE, tmp_path, tmp_path / "store").traces == 1
    (file,) = (tmp_path / "store").glob("*.partax")
    for data in damaged(file.read_bytes()):
        file.write_bytes(data)
        with pytest.warns(RuntimeWarning, match="damaged"):
            found = run(SOURCE, tmp_path, tmp_path / "store")
        assert found.traces == 1
        assert_right(found.value)
        assert Folder(tmp_path / "store", 1 << 30).read(file.stem) is not None, "it is whole again"
    assert run(SOURCE, tmp_path, tmp_path / "store").traces == 0


def test_a_file_by_the_name_of_another_is_traced_anew(tmp_path: Path) -> None:
    others = SOURCE.replace("2", "3")
    for source in (SOURCE, others):
        run(source, tmp_path, tmp_path / "store")
    one, other = (tmp_path / "store").glob("*.partax")
    other.write_bytes(one.read_bytes())
    with pytest.warns(RuntimeWarning, match="damaged"):
        found = [run(source, tmp_path, tmp_path / "store") for source in (SOURCE, others)]
    assert sum(it.traces for it in found) == 1
    assert [float(it.value[0][1]) for it in found] == [2, 3]


def assert_whole(store: Path, at_most: int) -> int:
    """That all that is stored can be read; gives how much."""
    folder = Folder(store, 1 << 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(folder.read(it.key) is not None for it in folder.files())
    assert len(folder.files()) <= at_most
    return len(folder.files())


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, pytest.param(8, marks=[pytest.mark.nightly] * IS_SHORT)])
def test_processes_that_write_the_same_at_once(processes: int, tmp_path: Path) -> None:
    started = [writer(tmp_path, 12) for _ in range(processes)]
    for it in started:
        said = it.communicate()
        assert it.returncode == 0 and said[0].startswith("begun\ndone"), said[1]
    assert assert_whole(tmp_path / "store", 12) == 12
    assert {it.suffix for it in (tmp_path / "store").iterdir()} == {".partax", ".list"}
    assert writer(tmp_path, 12).communicate()[0] == "begun\ndone 1\n"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="other systems have no kill")
def test_processes_that_are_killed_leave_nothing_half_written(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    for _ in range(2 if IS_SHORT else 40):
        started = writer(tmp_path, 200)
        assert started.stdout is not None
        assert started.stdout.readline() == "begun\n"
        time.sleep(float(chance.uniform(0, 0.4 if IS_SHORT else 2)))
        started.send_signal(signal.SIGKILL)
        started.communicate()
        assert_whole(tmp_path / "store", 200)
    assert "done" in writer(tmp_path, 3).communicate()[0]


def test_what_a_killed_process_has_left_goes(tmp_path: Path) -> None:
    left, fresh, others = tmp_path / ".key.0123.tmp", tmp_path / ".key.4567.tmp", tmp_path / "notes"
    for file in (left, fresh, others):
        file.write_bytes(bytes(100))
    for file in (left, others):
        os.utime(file, (1, 1))
    Folder(tmp_path, 1 << 20).write("key", b"data")
    assert not left.exists() and fresh.exists() and others.exists()


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """A disk of 64 KiB, where this user may make one."""
    path.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(path)]
    if sys.platform != "linux" or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a disk")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def first_calls(folder: Path, store: Path) -> None:
    for _ in range(3):
        with imported(SOURCE, folder, NAME) as module, partax.store(store):
            step = partax.filter_jit(module.make())
            for size in (3, 4):
                assert step(jnp.arange(float(size)))[2] == "a"
            step.clear_cache()
            written()


def test_a_full_disk_costs_a_warning(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with small_disk(store):
        (store / "other").write_bytes(bytes(60 << 10))
        with pytest.warns(RuntimeWarning, match="nothing is stored in .*: No space left") as said:
            first_calls(tmp_path, store)
        assert len(said) == 3, "once for each switch"
        assert [it.name for it in store.iterdir() if it.suffix != ".list"] == ["other"]
        (store / "other").unlink()
        assert run(SOURCE, tmp_path, store).traces == 1
        assert run(SOURCE, tmp_path, store).traces == 0
