"""Guards the promise that a save that is killed, runs out of disk or fails at any moment leaves the old file whole, and
that a saved file is on the disk with the permissions, in the place and under the name that the user meant."""

import errno
import os
import re
import resource
import signal
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors

from partax import load, save
from partax._io import file_format, save_and_load, whole_file
from processes import python

TEMPORARY = re.compile(r"\.model\.safetensors\.[0-9a-f]{16}\.tmp")


def version(number: int) -> dict[str, Any]:
    """Arrays that all tell the number, of sizes that differ from one number to the next.

    They have 64 bits, so that `load` gives NumPy arrays and does not start jax.
    """
    return {
        "large": np.full((number % 5 + 1, 20_000), number, np.int64),
        "small": np.full(number % 7, number, np.float64),
        "scalar": np.int64(number),
        "unsigned": np.full(3, number, np.uint64),
    }


def version_in(path: Path) -> int:
    """The number of a file's version. Raises an error if it is not whole."""
    arrays = load(path)
    number = int(arrays["scalar"])
    expected = version(number)
    assert set(arrays) == set(expected)
    for key, array in expected.items():
        assert arrays[key].shape == array.shape and (arrays[key] == number).all(), (key, number)
    return number


def leftovers(path: Path) -> list[str]:
    """What is beside the file."""
    return [name for name in os.listdir(path.parent) if name != path.name]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is there already, alone in its folder."""
    path = tmp_path / "folder" / "model.safetensors"
    path.parent.mkdir()
    save(path, version(1))
    return path


def kill_at_each_line(path: Path) -> None:
    """Kills a save before its first line of our code, before its second, and so on to the end.

    In a process of its own that has imported jax but not started it, so that it may fork.
    """
    seen = set()
    for lines in range(10_000):
        before, count = version_in(path), 0

        def trace(frame: Any, event: str, _: Any, lines: int = lines) -> Any:
            nonlocal count
            if frame.f_code.co_filename not in (save_and_load.__file__, file_format.__file__, whole_file.__file__):
                return None
            count += event == "line"
            if count > lines:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        child = os.fork()
        if child == 0:
            sys.settrace(trace)
            save(path, version(before + 1))
            os._exit(0)
        end, after = os.waitpid(child, 0)[1], version_in(path)
        assert after in (before, before + 1)
        seen.add(after == before)
        if end == 0:
            break
    assert seen == {True, False}, seen
    assert all(TEMPORARY.fullmatch(name) for name in leftovers(path))
    print("lines", lines)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the savers are forked")
def test_killed_at_each_line(path: Path) -> None:
    lines = re.fullmatch(
        r"lines (\d+)\n", python("-W", "ignore", __file__, str(path), PYTHONPATH=os.pathsep.join(sys.path)).stdout
    )
    assert lines is not None and int(lines[1]) > 60


def test_limited_file_size(path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(OSError, match=re.escape(f"'{path}'")) as raised:
            save(path, {"large": np.zeros(4_000_000, np.uint8)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(path))
    assert version_in(path) == 1 and leftovers(path) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "none" / "model.safetensors"
    with pytest.raises(FileNotFoundError) as raised:
        save(path, version(1))
    assert raised.value.filename == str(path)


FAILURES: list[tuple[Any, str, BaseException]] = [
    *((os, step, OSError(errno.EIO, "broken disk")) for step in ("mkdir", "chmod", "fsync", "replace")),
    *((os, step, KeyboardInterrupt()) for step in ("mkdir", "chmod", "fsync", "replace")),
    (safetensors, "serialize_file", safetensors.SafetensorError("too large")),  # without a number of the system
]


@pytest.mark.parametrize(("module", "step", "error"), FAILURES)
def test_a_step_that_fails(
    module: Any, step: str, error: BaseException, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(module, step, fail)
        with pytest.raises(type(error) if module is os else ValueError) as raised:
            save(path, version(2))
    assert not isinstance(error, OSError) or raised.value.filename == str(path)
    assert module is os or str(raised.value) == f"`{path}` cannot be saved: too large"
    assert version_in(path) == 1 and leftovers(path) == []


def test_the_bytes_are_on_the_disk_before_the_name_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, int]] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor: int) -> None:
        steps.append(("fsync", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def note_replace(source: Any, target: Any) -> None:
        steps.append(("replace", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    save(path, version(2))
    file, folder = path.stat().st_ino, path.parent.stat().st_ino
    assert steps == [("fsync", file), ("replace", file), ("fsync", folder)]


def test_a_file_system_that_cannot_sync_folders(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def refuse_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no folders here")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    save(path, version(2))
    assert version_in(path) == 2


def test_a_file_that_is_cut_off_while_it_is_in_use(path: Path) -> None:
    like = version(1)
    arrays = [load(path), load(path, like)]
    os.truncate(path, 10)
    for loaded in arrays:
        assert (loaded["large"] == 1).all()
    with pytest.raises(ValueError, match=r"model\.safetensors` cannot be loaded"):
        load(path, like)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_permissions_of_any_new_file(mask: int, tmp_path: Path) -> None:
    path = tmp_path / "new"
    before = os.umask(mask)
    try:
        save(path, version(1))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o400])
def test_an_existing_file_keeps_its_permissions(mode: int, path: Path) -> None:
    path.chmod(mode)
    save(path, version(2))
    assert stat.S_IMODE(path.stat().st_mode) == mode and version_in(path) == 2


def test_a_link_stays_and_its_file_is_replaced(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    save(link, version(2))
    assert link.is_symlink() and not path.is_symlink() and version_in(path) == version_in(link) == 2
    assert leftovers(path) == []


def test_what_is_no_regular_file_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        before = (tmp_path / name).stat()
        with pytest.raises(FileExistsError, match=f"no regular file: '{tmp_path / name}'"):
            save(tmp_path / name, version(1))
        assert (tmp_path / name).stat().st_ino == before.st_ino
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


def test_savers_at_the_same_time(path: Path) -> None:
    def save_many(start: int) -> None:
        for number in range(start, start + 20):
            save(path, version(number))

    with ThreadPoolExecutor(4) as pool:
        savers = [pool.submit(save_many, 100 * i) for i in range(1, 5)]
        while not all(saver.done() for saver in savers):
            version_in(path)
    for saver in savers:
        saver.result()
    assert version_in(path) % 100 == 19 and leftovers(path) == []


if __name__ == "__main__":
    kill_at_each_line(Path(sys.argv[1]))
