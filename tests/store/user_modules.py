"""Runs modules of a user's as processes do that come one after the other, with one folder of programs."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

import partax

NAME = "module_of_the_user"


class Run(NamedTuple):
    """What a process has got of a module's `make()`, and how often it has traced."""

    value: Any
    traces: int
    right: Any  # what plain Python gives in the same process


@contextmanager
def imported(source: str, folder: Path, name: str = NAME) -> Iterator[types.ModuleType]:
    """The module of a source, as long as the block runs."""
    file = folder / f"{name}_{next(_numbers)}.py"
    file.write_text(source, encoding="utf-8")
    module = types.ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module
    try:
        exec(compile(source, str(file), "exec"), vars(module))
        yield module
    finally:
        getattr(module, "restore", lambda: None)()
        sys.modules.pop(name, None)


_numbers = itertools.count()


def written() -> None:
    """Waits until all that is to be stored is."""
    for thread in threading.enumerate():
        if thread.name == "partax store":
            thread.join(30)


def run(
    source: str, folder: Path, store: Path, change: Callable[[types.ModuleType], None] = lambda module: None, **jit: Any
) -> Run:
    """Imports a module, calls what its `make()` gives, and forgets both.

    The module may have `ARGUMENTS` and `KEYWORDS`, which the function is called with; else it is an array.
    """
    with partax.store(store), imported(source, folder) as module:
        change(module)
        step = partax.filter_jit(module.make(), **jit)
        step.clear_cache()  # of an equal function before: another process has none
        arguments = getattr(module, "ARGUMENTS", (jnp.arange(3.0),))
        value = step(*arguments, **getattr(module, "KEYWORDS", {}))
        traces = step.cache_info().traces
        step.clear_cache()
        right = module.make()(*arguments, **getattr(module, "KEYWORDS", {}))
    written()
    del step
    gc.collect()
    return Run(value, traces, right)
