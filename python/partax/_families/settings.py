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
    linen, variables, graphs = "flax.linen.module", "flax.nnx.variablelib", "flax.nnx.graphlib"
    modes = [(graphs, "set_graph_mode"), (graphs, "set_graph_updates"), (variables, "use_eager_sharding")]
    asked = [_found(module, name, "current_value") for module, name in modes]
    config = _found("flax.configurations", "config", "_values") or {}
    return (
        *config.values(),
        *(ask and ask() for ask in asked),
        *(stack[-1:] for stack in _stacks(variables, "VARIABLE_CONTEXT", "variable_hijax_stack", "variable_ref_stack")),
        tuple(tuple(rule) for rule in _found("flax.core.spmd", "_axis_rules", "rules") or ()),
        tuple(_found(linen, "_global_interceptor_stack") or ()),
        _found(linen, "_use_named_call"),
        *_stacks(linen, "_context", "module_stack", "capture_stack", "call_info_stack"),
    )


def _found(module: str, *path: str) -> Any:
    """A name of a module, and attributes of it; None where this version has none, or the module is not imported."""
    return functools.reduce(lambda it, name: getattr(it, name, None), path, sys.modules.get(module))


def _stacks(module: str, context: str, *names: str) -> list[tuple[Any, ...]]:
    """What a context of this thread has, most often nothing."""
    return [tuple(_found(module, context, name) or ()) for name in names]


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
