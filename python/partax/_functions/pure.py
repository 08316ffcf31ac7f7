"""The allow-list: libraries whose functions, classes and modules are taken as published and as configured.

What they define is known by identity. A library is listed if the results of its functions depend on their arguments
alone, and on jax's configuration. Printing, logging, warning and measuring time are side effects of tracing.
"""

import functools
import sys
import types
from typing import Any

from partax._families.installed import is_installed
from partax._families.objects import attribute_of

_LIBRARIES = """
_abc _collections _collections_abc _functools _operator abc argparse builtins cmath collections contextlib copy
copyreg dataclasses enum functools inspect itertools logging math numbers operator re reprlib string textwrap types
typing warnings weakref
beartype chex diffrax einops equinox flax haiku jax jaxlib jaxtyping lineax ml_dtypes numpy optax optimistix penzai
quax typing_extensions wadler_lindig
partax
nt.fspath posix.fspath sys.intern
time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns time.process_time time.process_time_ns
"""
# What listed libraries define that reads the world, has state of its own, or leads to what the code does not name.
_IMPURE = """
builtins.__import__ builtins.breakpoint builtins.compile builtins.delattr builtins.dir builtins.eval builtins.exec
builtins.globals builtins.hash builtins.help builtins.id builtins.input builtins.locals builtins.memoryview
builtins.open builtins.vars
inspect.currentframe inspect.stack inspect.trace itertools.count itertools.cycle
equinox.tree_deserialise_leaves flax.training.checkpoints
jax.device_count jax.devices jax.live_arrays jax.local_device_count jax.local_devices jax.numpy.load jax.profiler
numpy.DataSource numpy.fromfile numpy.fromregex numpy.genfromtxt numpy.load numpy.loadtxt numpy.memmap numpy.random
optax.contrib.global_state
weakref
"""
_libraries = set(_LIBRARIES.split())
_impure = set(_IMPURE.split())
_declared: set[str] = set()  # modules of users


def declare_pure(*modules: str) -> None:
    """Declare that the results of some modules' functions depend on their arguments alone.

    Example:
      >>> partax.declare_pure("mylib.ops")

    A re-created function hits the program of an equal earlier one only if all that its code can read is provably
    unchanged. partax reads functions written in Python, but not extension modules, hidden state or files.

    Args:
      *modules: Names such as `"mylib.ops"`; the modules below are included.

    Raises:
      TypeError: One of them is not a string.

    See Also: The guide "When does a call retrace?".
    """
    for module in modules:
        if not isinstance(module, str):
            name = type(module).__name__
            raise TypeError(f"declare_pure: found a `{name}`, expected the name of a module, as 'mylib.ops'")
        _declared.add(module)
        is_listed_name.cache_clear()


@functools.lru_cache(4096)
def is_listed_name(module: str, name: str = "") -> bool:
    """Whether a module, or a name of it, is on the list, and the module is the installed one."""
    parts = f"{module}.{name}".split(".")
    paths = {".".join(parts[:i]) for i in range(1, len(parts) + 1)}
    if not _declared.isdisjoint(paths):
        return True
    return paths.isdisjoint(_impure) and not paths.isdisjoint(_libraries) and is_installed(module)


def module_of(value: Any) -> str:
    """The name of the module that defines a value, or its class: C functions and methods may have none."""
    module = attribute_of(value, "__module__") or attribute_of(type(value), "__module__")
    return module if type(module) is str else ""


def name_of(value: Any) -> str:
    name = attribute_of(value, "__qualname__") or attribute_of(value, "__name__")
    return name if type(name) is str else ""


def is_pure(value: Any) -> bool:
    """Whether a function, class or other callable is what its module on the list has by its name."""
    module, name = module_of(value), name_of(value)
    if not name or "<locals>" in name or not is_listed_name(module, name):
        return False
    first, *rest = name.split(".")
    target = attribute_of(sys.modules.get(module), "__dict__", {}).get(first)  # a module may make up what it lacks
    for part in rest:
        target = attribute_of(target, part)
    return target is value


def is_listed_module(module: Any) -> bool:
    return type(module) is types.ModuleType and is_listed_name(str(vars(module).get("__name__")))
