"""Replaces a file atomically."""

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def replace_file(path: str | os.PathLike[str], write: Callable[[str], object]) -> None:
    """Replace a file, or the target of a link, with the file that `write` writes."""
    target = os.path.realpath(os.fsdecode(path))
    if os.path.exists(target) and not os.path.isfile(target):
        raise FileExistsError(errno.EEXIST, "found something other than a regular file", target)
    folder, name = os.path.split(target)
    # A directory, since safetensors writes temporary files of its own.
    with tempfile.TemporaryDirectory(".tmp", f".{name[:50]}.", folder, ignore_cleanup_errors=True) as temporary:
        fresh = Path(temporary, "fresh")
        fresh.touch()
        mode = os.stat(target if os.path.exists(target) else fresh).st_mode
        write(str(fresh))
        with open(fresh, "r+b") as file:
            fresh.chmod(mode & 0o777)
            os.fsync(file.fileno())
        fresh.replace(target)
