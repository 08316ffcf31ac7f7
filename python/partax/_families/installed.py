"""Which modules Python or an installed library defines, so that their objects are none of the user's."""

import functools
import os
import sys
import sysconfig
from typing import Any

real_path = functools.cache(os.path.realpath)


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    folders = set(map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
    folders |= {entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")}
    return tuple({os.path.realpath(folder) + os.sep for folder in folders})


def is_installed(module: Any) -> bool:
    """Whether a module of this name is of Python or an installed library."""
    if not isinstance(module, str):
        return False
    root = module.partition(".")[0]
    if root in ("partax", "__main__"):
        return root == "partax"
    loaded = sys.modules.get(module) or sys.modules.get(root)
    file = getattr(loaded, "__file__", None)
    if not isinstance(file, str):
        return getattr(getattr(loaded, "__spec__", None), "origin", None) in ("built-in", "frozen")
    return str(real_path(file)).startswith(_installed_folders())
