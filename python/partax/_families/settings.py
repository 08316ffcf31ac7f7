"""What the functions of libraries that are known to be pure read beside their arguments: settings, and contexts."""

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from partax._jax.settings import ask_for_settings


def _of_numpy() -> tuple[Any, ...]:
    return tuple(np.geterr().values())


def _of_jaxtyping() -> tuple[Any, ...]:
    return tuple(vars(_found("jaxtyping._config", "config")).values())


def _of_flax() -> tuple[Any, ...]:
    config = _found("flax.configurations", "config", "_values") or {}
    module = "flax.linen.module"
    return (
        *config.values(),
        tuple(tuple(rule) for rule in _found("flax.core.spmd", "_axis_rules", "rules") or ()),
        tuple(_found(module, "_global_interceptor_stack") or ()),
        _found(module, "_use_named_call"),
        *_stacks(_found(module, "_context"), "module_stack", "capture_stack", "call_info_stack"),
        *_stacks(
            _found("flax.nnx.variablelib", "VARIABLE_CONTEXT"),
            *("variable_hijax_stack", "variable_ref_stack", "eager_shard_stack"),
        ),
        *_stacks(_found("flax.nnx.graphlib", "GRAPH_CONTEXT"), "graph_mode_stack", "graph_updates_stack"),
    )


def _found(module: str, *path: str) -> Any:
    """A name of a module, and attributes of it; None where this version has none, or the module is not imported."""
    return functools.reduce(lambda it, name: getattr(it, name, None), path, sys.modules.get(module))


def _stacks(context: Any, *names: str) -> tuple[Any, ...]:
    return tuple(tuple(getattr(context, name, ())) for name in names)


_OF_LIBRARIES: dict[str, Callable[[], tuple[Any, ...]]] = {
    "numpy": _of_numpy,
    "jaxtyping": _of_jaxtyping,
    "flax": _of_flax,
}


_Ask = Callable[[Any], tuple[Any, ...]]


def asked_of(packages: Iterable[str]) -> tuple[_Ask, str]:
    """What asks `SETTINGS` for those of jax, and for those of some packages that have any; and what these are.

    Args:
      packages: the first part of the names of modules.
    """
    return _asked_of(tuple(name for name in _OF_LIBRARIES if name in packages))


@functools.cache
def _asked_of(libraries: tuple[str, ...]) -> tuple[_Ask, str]:
    def ask(settings: Any) -> tuple[Any, ...]:
        return *ask_for_settings(settings), *(value for name in libraries for value in _OF_LIBRARIES[name]())

    name = " or ".join(("jax.config", *(f"a setting of {library}" for library in libraries)))
    return ask if libraries else ask_for_settings, name


def of_libraries() -> dict[str, str]:
    """The settings of each such library that is imported, as a text."""
    return {name: repr(ask()) for name, ask in _OF_LIBRARIES.items() if name in sys.modules}
