"""What Python and installed libraries define: it is found again by its module and name, and never changes."""

import functools
import os
import sys
import sysconfig
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental

from partax._statics.user_objects import read

# What these give is nowhere in reach: a clock, chance, the environment, a file, names that are made up.
_OUTSIDE = {
    "time": "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time localtime gmtime",
    "os": "getenv urandom listdir stat getcwd getpid",
    "posix": "urandom listdir stat getcwd getpid",
    "nt": "urandom listdir stat getcwd getpid",
    "uuid": "uuid1 uuid4",
    "secrets": "token_bytes token_hex token_urlsafe",
    "builtins": "open input eval exec compile globals locals vars __import__",
    "io": "open",
    "_io": "open",
    "numpy": "load loadtxt fromfile genfromtxt fromregex memmap",
    "decimal": "getcontext localcontext",
    "_decimal": "getcontext localcontext",
    "importlib": "import_module reload",
    "inspect": "currentframe stack getdoc get_annotations",
    "annotationlib": "get_annotations",
    "typing": "get_type_hints",
    "sys": "_getframe",
}
# What is handed to these reads what it holds when the program runs. Found as what they are, wherever they are defined.
_CALLBACKS = (jax.pure_callback, jax.experimental.io_callback, jax.debug.callback)


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {os.path.realpath(paths[name]) for name in names if name in paths}
    for entry in sys.path:  # of other environments that this one sees
        if os.path.basename(entry) in ("site-packages", "dist-packages"):
            folders.add(os.path.realpath(entry))
    return tuple(folder + os.sep for folder in folders)


@functools.cache
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
        spec = getattr(found, "__spec__", None)
        return getattr(spec, "origin", None) in ("built-in", "frozen")
    return os.path.realpath(file).startswith(_installed_folders())


# Past the attributes that a subclass of modules makes up.
globals_of: Callable[[types.ModuleType], dict[str, Any]] = vars(types.ModuleType)["__dict__"].__get__


def is_of_installed_module(module_globals: dict[str, Any]) -> bool:
    """Whether these are the globals of a module which Python or a library defines."""
    name = module_globals.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    is_module = issubclass(type(module), types.ModuleType)
    return is_module and globals_of(module) is module_globals and is_installed(name)  # type: ignore[arg-type]


def is_of_library(value: Any) -> bool:
    """Whether Python or an installed library defines a callable, so that it is found there by its name."""
    module = read(value, "__module__") or type(value).__module__  # NumPy's older functions have none
    name = read(value, "__qualname__") or read(value, "__name__")
    if not is_installed(module) or not isinstance(name, str) or reads_outside(value):
        return False
    found = sys.modules.get(module)
    for part in name.split("."):
        found = read(found, part)
    return found is value


def reads_outside(value: Any) -> bool:
    """Whether what a function of Python gives depends on more than its arguments."""
    equinox = sys.modules.get("equinox")
    callbacks = _CALLBACKS if equinox is None else (*_CALLBACKS, read(equinox, "filter_pure_callback"))
    if value is not None and any(value is callback for callback in callbacks):
        return True
    module = read(value, "__module__")
    return isinstance(module, str) and read(value, "__name__") in _OUTSIDE.get(module, "").split()


def is_of_instance(function: Any) -> bool:
    """Whether a function is a method of an object with a state, as those of `random` are."""
    owner = read(function, "__self__")
    return owner is not None and not isinstance(owner, (types.ModuleType, type))
