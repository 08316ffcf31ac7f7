"""The file and line of a call in the user's own code: `train.py:41`."""

import os
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import jax

_Result = TypeVar("_Result")


def _directory(module: Any) -> str:
    return os.path.dirname(os.path.abspath(module.__file__)) + os.sep


_LIBRARY_FILE = re.compile(
    r"[\\/](?:site|dist)-packages[\\/]"
    r"(?:equinox|flax|optax|chex|haiku|jaxtyping|diffrax|optimistix|lineax|penzai)[\\/]"
)


def is_of_library(filename: str) -> bool:
    """Whether a file belongs to a library that calls jax for the user."""
    return _LIBRARY_FILE.search(filename) is not None


_not_the_user = (_directory(jax), _directory(sys.modules["partax"]))


def call_site() -> tuple[str, int]:
    """The file and line of the innermost call in the user's own code, above packages that call jax for the user."""
    equinox = sys.modules.get("equinox")
    skipped_directories = _not_the_user if equinox is None else (*_not_the_user, _directory(equinox))
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is run_for.__code__:
            return frame.f_locals["site"]
        filename = frame.f_code.co_filename
        if not filename.startswith(skipped_directories) and not filename.startswith("<frozen "):
            return filename, frame.f_lineno
        frame = frame.f_back
    return "<no Python caller>", 0


def run_for(site: tuple[str, int], do: Callable[..., _Result], *args: Any) -> _Result:
    """Run `do` in a thread of partax for a call of the user at `site` in another thread."""
    return do(*args)


def site_text(site: tuple[str, int]) -> str:
    """`train.py:41`, relative to the working directory or to the directory of installed packages."""
    filename, line = site
    _, directory, text = filename.rpartition(f"site-packages{os.sep}")
    if not directory:
        try:
            text = os.path.relpath(filename)
        except (ValueError, OSError):
            text = filename
        text = filename if text.startswith("..") else text
    return f"{text}:{line}" if line else filename
