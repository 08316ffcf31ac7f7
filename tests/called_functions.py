"""Which Python functions of some packages a call runs."""

import os
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def called_functions(call: Callable[[], Any], *packages: ModuleType) -> list[str]:
    """The names of the functions of these packages that a call runs, in order."""
    folders = tuple(os.path.dirname(str(package.__file__)) + os.sep for package in packages)
    called: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(folders):
            called.append(frame.f_code.co_qualname)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return called
