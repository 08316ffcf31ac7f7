"""Guards the promise that saving and loading a large file shows on a terminal how far it is, a small one nothing."""

import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors

from partax import load, save
from partax._io import file_format
from partax._report import table as module
from terminals import Terminal, terminal

LARGE = {"weights": np.arange(3_000_000, dtype=np.float32)}  # 12 MB
SMALL = {"weights": np.arange(30, dtype=np.float32)}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setattr(module, "_AFTER", 0)
    monkeypatch.setattr(module, "_EVERY", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    with terminal(100) as made:
        monkeypatch.setattr(module, "sys", types.SimpleNamespace(stderr=made.file))
        yield made


def then(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, check: Callable[..., object]) -> None:
    """Has a function check something once it has done what it is called for."""
    theirs = getattr(place, name)

    def done(*args: Any, **options: Any) -> Any:
        result = theirs(*args, **options)
        check(*args)
        return result

    monkeypatch.setattr(place, name, done)


def test_a_large_file_shows_how_far_it_is(tmp_path: Path, seen: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    save(path, SMALL)
    load(path)
    assert seen.raw == ""
    told: list[Any] = []
    # All is written, but for what the terminal was told before.
    then(monkeypatch, safetensors, "serialize_file", lambda *_: told.append(seen.wait_for("11.4/11.4 MiB")))
    save(path, LARGE)
    assert told == [True] and "saving model.safetensors" in seen.text
    monkeypatch.setattr(file_format, "_CHUNK", 99_999)
    then(monkeypatch, file_format, "is_shown", lambda: told.append(seen.wait_for("loading model.safetensors")))
    then(monkeypatch, file_format, "_read", lambda name, size, work: told.append(work.done))
    then(monkeypatch, safetensors, "deserialize", lambda _: told.append(seen.wait_for("unpacking model.safetensors")))
    assert np.array_equal(load(path)["weights"], LARGE["weights"])
    assert told[1:] == [True, path.stat().st_size, True]
    assert seen.wait_for(lambda text: text.endswith("\r"))
