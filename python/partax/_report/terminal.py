"""Whether somebody looks at a stream as it is written, and how wide it is."""

import os
import shutil
from typing import Any


def is_terminal(file: Any) -> bool:
    """Whether a stream is a terminal that can place its text: no pipe, file or notebook, and not a dumb one."""
    try:
        return bool(file.isatty()) and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError, OSError):  # None, as under pythonw; or a closed file
        return False


def width_of(file: Any) -> int:
    """How many columns a terminal has: what the environment variable `COLUMNS` says, else what the terminal does."""
    try:
        if not os.environ.get("COLUMNS", "").isdecimal():
            return os.get_terminal_size(file.fileno()).columns or _USUAL
    except (AttributeError, ValueError, OSError):  # a stream that says that it is a terminal, but is no file
        pass
    return shutil.get_terminal_size((_USUAL, 24)).columns


_USUAL = 80
