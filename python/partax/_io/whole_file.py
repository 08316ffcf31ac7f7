"""Replaces a file as a whole: at once, or not at all."""

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

UNFINISHED = ".tmp"  # the end of the name of a folder in which a file is being written


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    try:
        replace_file(path, lambda fresh: Path(fresh).write_bytes(text.encode()))
    except OSError as error:
        advice = "nothing was written: give a file in a folder that exists and that you may write to"
        raise OSError(error.errno, f"{error.strerror}; {advice}", os.fspath(path)) from error


def replace_file(path: str | os.PathLike[str], write: Callable[[str], object]) -> None:
    """Replaces a file by what `write` writes, or the file that a link points to."""
    target = os.path.realpath(os.fsdecode(path))
    if os.path.exists(target) and not os.path.isfile(target):
        raise FileExistsError(errno.EEXIST, "found something that is no regular file", target)
    folder, name = os.path.split(target)
    # A folder, since the library of `save` writes temporary files of its own.
    with tempfile.TemporaryDirectory(UNFINISHED, f".{name[:50]}.", folder, ignore_cleanup_errors=True) as temporary:
        fresh = Path(temporary, "fresh")
        fresh.touch()
        mode = os.stat(target if os.path.exists(target) else fresh).st_mode
        write(str(fresh))
        with open(fresh, "r+b") as file:
            fresh.chmod(mode & 0o777)
            os.fsync(file.fileno())
        fresh.replace(target)
