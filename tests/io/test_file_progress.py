"""Guards the promise that saving and loading a large file shows how far it is on a terminal and nothing in a pipe, that
a small file costs no thread, and that what is interrupted leaves the older file whole."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors

from partax import load, save
from partax._io import file_format
from partax._report import progress as module
from terminals import terminal

LARGE = {"weights": np.arange(3_000_000, dtype=np.float32), "more": np.ones((7, 5), np.int16)}  # 12 MB
SMALL = {"weights": np.arange(30, dtype=np.float32)}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AFTER", 0)
    monkeypatch.setattr(module, "_EVERY", 0.01)
    monkeypatch.setenv("TERM", "xterm")


def assert_same(found: dict[str, Any], expected: dict[str, np.ndarray[Any, Any]]) -> None:
    assert set(found) == set(expected)
    for key, array in expected.items():
        assert found[key].dtype == array.dtype and (np.asarray(found[key]) == array).all()


def then(monkeypatch: pytest.MonkeyPatch, name: str, check: Callable[[], None]) -> None:
    """Has the library check something once it has done what it is called for."""
    theirs = getattr(safetensors, name)

    def done(*args: Any, **options: Any) -> Any:
        result = theirs(*args, **options)
        check()
        return result

    monkeypatch.setattr(safetensors, name, done)


def test_saving_shows_how_much_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    with terminal(100) as seen:
        monkeypatch.setattr(sys, "stderr", seen.file)
        checked: list[bool] = []
        # All is written, but for what the terminal was told before.
        then(monkeypatch, "serialize_file", lambda: checked.append(seen.wait_for("11.4/11.4 MiB")))
        save(path, LARGE)
        assert checked == [True]
        assert "saving model.safetensors" in seen.text
    assert_same(load(path), LARGE)


@pytest.mark.skipif(os.name != "posix", reason="other systems do not tell what of a file is on the disk")
def test_what_is_written_is_counted_though_the_file_has_its_size_from_the_start(tmp_path: Path) -> None:
    with open(tmp_path / "begun", "wb") as file:
        file.truncate(1 << 22)
        assert file_format._bytes_in(str(tmp_path)) < 1 << 20
        file.write(bytes(range(256)) * (1 << 13))
        file.flush()
        os.fsync(file.fileno())
        assert 1 << 21 <= file_format._bytes_in(str(tmp_path)) < 1 << 22
    assert file_format._bytes_in(str(tmp_path / "gone")) == 0


def test_loading_shows_how_much_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    save(path, LARGE)
    read: list[int] = []
    with terminal(100) as seen:
        monkeypatch.setattr(sys, "stderr", seen.file)
        theirs = file_format._read

        def slowly(name: str, size: int, work: Any) -> bytes:
            assert seen.wait_for("loading model.safetensors")
            data = theirs(name, size, work)
            read.append(work.done)
            return data

        monkeypatch.setattr(file_format, "_read", slowly)
        then(monkeypatch, "deserialize", lambda: read.append(seen.wait_for("unpacking model.safetensors")))
        assert_same(load(path), LARGE)
        assert read == [os.path.getsize(path), True]
        assert seen.wait_for(lambda text: text.endswith("\r")) and "11.4/11.4 MiB" in seen.text


def test_what_is_read_in_parts_is_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_format, "_LARGE", 1)
    monkeypatch.setattr(file_format, "_CHUNK", 7)
    with terminal() as seen:
        monkeypatch.setattr(sys, "stderr", seen.file)
        for size in (0, 1, 6, 7, 8, 700):
            (tmp_path / "data").write_bytes(os.urandom(size))
            work = module.Progress("", size)
            assert file_format._read(str(tmp_path / "data"), size + 1, work) == (tmp_path / "data").read_bytes()
            assert work.done == size


def test_a_pipe_gets_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str], started: list[str]) -> None:
    save(tmp_path / "model.safetensors", LARGE)
    assert_same(load(tmp_path / "model.safetensors"), LARGE)
    assert capfd.readouterr() == ("", "") and started == []


def test_a_small_file_starts_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[str]) -> None:
    with terminal() as seen:
        monkeypatch.setattr(sys, "stderr", seen.file)
        save(tmp_path / "model.safetensors", SMALL)
        assert_same(load(tmp_path / "model.safetensors"), SMALL)
    assert started == [] and seen.raw == ""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that were started for a bar."""
    names: list[str] = []
    theirs = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("partax"):
            names.append(thread.name)
        theirs(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    return names


def test_a_large_file_on_a_terminal_starts_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[str]
) -> None:
    with terminal() as seen:
        monkeypatch.setattr(sys, "stderr", seen.file)
        save(tmp_path / "model.safetensors", LARGE)
    assert started == ["partax progress"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_save_leaves_the_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    path = tmp_path / "model.safetensors"
    save(path, SMALL)
    with terminal() as seen:
        monkeypatch.setattr(sys, "stderr", seen.file)

        def interrupted() -> None:
            assert seen.wait_for("saving model.safetensors")
            raise error

        then(monkeypatch, "serialize_file", interrupted)
        with pytest.raises(error):
            save(path, LARGE)
        assert seen.wait_for(lambda text: text.endswith("\r"))
    assert os.listdir(tmp_path) == [path.name]
    assert_same(load(path), SMALL)
    assert not [thread for thread in threading.enumerate() if thread.name == "partax progress"]


def test_an_interrupted_load_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    save(path, LARGE)
    with terminal() as seen:
        monkeypatch.setattr(sys, "stderr", seen.file)

        def interrupted() -> None:
            assert seen.wait_for("loading model.safetensors")
            raise KeyboardInterrupt

        then(monkeypatch, "deserialize", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load(path)
    assert not [thread for thread in threading.enumerate() if thread.name == "partax progress"]


def test_errors_of_files_are_as_they_are_without_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def errors() -> list[tuple[Any, ...]]:
        (tmp_path / "broken").write_bytes(b"\xff" * 12_000_000)
        found: list[tuple[Any, ...]] = []
        for name in ("missing", "broken", "."):
            with pytest.raises((OSError, ValueError)) as caught:
                load(tmp_path / name)
            found.append((type(caught.value), str(caught.value)))
        with pytest.raises(OSError) as caught:
            save(tmp_path / "no such folder" / "model.safetensors", LARGE)
        return [*found, (type(caught.value), str(caught.value))]

    expected = errors()
    with terminal() as seen:
        monkeypatch.setattr(sys, "stderr", seen.file)
        assert errors() == expected
