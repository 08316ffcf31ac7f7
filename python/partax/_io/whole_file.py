"""Replaces a file as a whole: at once, or not at all."""

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

_UNFINISHED = ".tmp"


def is_unfinished(name: str) -> bool:
    """Whether an entry of a folder is what a process that writes a file there has not finished."""
    return name.startswith(".") and name.endswith(_UNFINISHED)


def write_whole(path: str | Path, text: str) -> None:
    """Replaces a file by a text, at once or not at all, with an OSError that says what to do. A symbolic link stays;
    the file that it points to is replaced.
    """
    name = os.fsdecode(path)
    data = text.encode()
    try:
        replace_file(os.path.realpath(name), lambda fresh: Path(fresh).write_bytes(data))
    except OSError as error:
        advice = "give a file in a folder that exists and that you may write to"
        raise OSError(error.errno, f"{error.strerror}; nothing was written: {advice}", name) from error


def replace_file(target: str, write: Callable[[str], object]) -> None:
    """Replaces a file by what `write` writes, all or nothing."""
    if os.path.exists(target) and not os.path.isfile(target):
        raise FileExistsError(errno.EEXIST, "found something that is no regular file", target)
    folder, name = os.path.split(target)
    # A directory, as the library names temporary files of its own; these are in it too.
    temporary = os.path.join(folder, f".{name[:50]}.{secrets.token_hex(8)}{_UNFINISHED}")
    os.mkdir(temporary, 0o700)
    try:
        fresh = os.path.join(temporary, "fresh")
        with open(fresh, "xb") as file:
            mode = os.fstat(file.fileno()).st_mode
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(target).st_mode
        write(fresh)
        with open(fresh, "r+b") as file:
            os.chmod(fresh, stat.S_IMODE(mode))
            os.fsync(file.fileno())
        os.replace(fresh, target)
        _sync_folder(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sync_folder(folder: str) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot
            raise
    finally:
        os.close(descriptor)
