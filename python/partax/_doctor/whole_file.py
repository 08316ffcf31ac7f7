"""Replaces a text file as a whole."""

import os
from pathlib import Path

from partax._files.file_format import _write as replace_file


def write_whole(path: str | Path, text: str) -> None:
    """Replaces a file by a text, at once or not at all.

    Args:
      path: the file. A symbolic link stays, and the file that it points to is replaced.
      text: what it is to hold.

    Raises:
      OSError: the file cannot be written; the message names it and says what to do. An older file is whole.
    """
    name = os.fsdecode(path)
    data = text.encode()
    try:
        replace_file(os.path.realpath(name), lambda fresh: _fill(fresh, data))
    except OSError as error:
        advice = "give a file in a folder that exists and that you may write to"
        raise OSError(error.errno, f"{error.strerror}; nothing was written: {advice}", name) from error


def _fill(fresh: str, data: bytes) -> None:
    with open(fresh, "wb") as file:
        file.write(data)
