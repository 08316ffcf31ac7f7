"""Guards the promise that saving and loading a large file shows how far it is on a terminal and nothing in a pipe, and
that a small file costs no thread."""

from __future__ import annotations

import os
import sys
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
    assert file_format._bytes_in(str(tmp_path / "gone")) == 0  # of a folder that is renamed while it is asked for
