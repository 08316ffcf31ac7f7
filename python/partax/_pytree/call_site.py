"""Where in the user's own code a call comes from: `train.py:41`."""

import os
import sys
import sysconfig
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import jax

_Result = TypeVar("_Result")


def _directory(module: Any) -> str:
    return os.path.dirname(os.path.abspath(module.__file__)) + os.sep


# Whose code is between the user's own and jax.
_LIBRARIES = ("equinox", "flax", "optax", "chex", "haiku", "jaxtyping", "diffrax", "optimistix", "lineax", "penzai")
_SITES = ("site-packages", "dist-packages")
_INSTALLED = tuple(
    {
        *(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib")),
        # Of the user, or another environment that this one has a `.pth` file for.
        *(os.path.join(folder, "") for folder in sys.path if os.path.basename(folder) in _SITES),
    }
)
LIBRARY_FOLDERS = tuple(folder + name + os.sep for folder in _INSTALLED for name in _LIBRARIES)


def is_of_library(filename: str) -> bool:
    """Whether a file is one of a library that stands between the user and jax, and not the user's own."""
    return filename.startswith(LIBRARY_FOLDERS)


_own = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_not_the_user = (_directory(jax), _own)


def call_site(*packages: str) -> tuple[str, int]:
    """The file and line of the innermost call in the user's own code, above packages that call jax for the user."""
    between = filter(None, map(sys.modules.get, (*packages, "equinox")))
    inside = (*_not_the_user, *map(_directory, between))
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is run_for.__code__:
            return frame.f_locals["site"]
        filename = frame.f_code.co_filename
        if not filename.startswith(inside) and not filename.startswith("<frozen "):
            return filename, frame.f_lineno
        frame = frame.f_back
    return "<no Python caller>", 0


def run_for(site: tuple[str, int], do: Callable[..., _Result], *args: Any) -> _Result:
    """Calls `do` in a thread of partax's for a call of the user's in another thread, which is at `site`."""
    return do(*args)


def file_text(filename: str) -> str:
    """A file's name as its user writes it: from the working directory or from the installed package."""
    installed = filename.rpartition(f"site-packages{os.sep}")[2]
    if installed != filename:
        return installed
    try:
        relative = os.path.relpath(filename)
    except (ValueError, OSError):
        return filename
    return filename if relative.startswith("..") else relative


def site_text(site: tuple[str, int]) -> str:
    """`train.py:41`."""
    return f"{file_text(site[0])}:{site[1]}" if site[1] else site[0]
