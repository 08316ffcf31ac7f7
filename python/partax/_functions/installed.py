"""Which modules Python or an installed library defines, so that their objects are none of the user's."""

import functools
import glob
import os
import sys
import sysconfig
from typing import Any

real_path = functools.cache(os.path.realpath)


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {os.path.realpath(paths[name]) for name in names if name in paths}
    for entry in sys.path:  # of other environments that this one sees, and where pip was told another place
        is_usual = os.path.basename(entry) in ("site-packages", "dist-packages")
        if is_usual or glob.glob(os.path.join(glob.escape(entry), "*.dist-info")):
            folders.add(os.path.realpath(entry))
    return tuple(folder + os.sep for folder in folders)


def is_installed(module: Any) -> bool:
    """Whether a module of this name is Python's own or of an installed library, and not the user's."""
    if not isinstance(module, str):
        return False
    if module in sys.builtin_module_names or module == "builtins":
        return True
    root = module.partition(".")[0]
    if root in ("partax", "__main__"):
        return root == "partax"
    found = sys.modules.get(module) or sys.modules.get(root)
    file = getattr(found, "__file__", None)
    if not isinstance(file, str):
        return getattr(getattr(found, "__spec__", None), "origin", None) in ("built-in", "frozen")
    return _is_in_installed_folder(file)


@functools.cache
def _is_in_installed_folder(file: str) -> bool:
    folder, name = os.path.split(file)
    where = os.path.realpath(file) if os.path.islink(file) else os.path.join(real_path(folder), name)
    return where.startswith(_installed_folders())
