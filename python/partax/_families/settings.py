"""What the functions of libraries that are known to be pure read beside their arguments: settings, and contexts."""

import functools
import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from partax._jax.settings import JAX_SETTINGS, SETTINGS

# By the name of the library, where each setting is.
_PLACES = {
    "jaxtyping": ("jaxtyping.config.jaxtyping_disable", "jaxtyping.config.jaxtyping_remove_typechecker_stack"),
    "flax": (
        "flax.config._values",
        "flax.core.spmd._axis_rules.rules",
        "flax.linen.module._global_interceptor_stack._storage",
        "flax.linen.module._context.module_stack",
        "flax.linen.module._context.capture_stack",
        "flax.linen.module._context.call_info_stack",
    ),
}
# Of a thread: where its latest value is, and the setting that holds where it has none.
_OF_THREAD = {
    "flax.nnx.graphlib.GRAPH_CONTEXT.graph_mode_stack": "nnx_graph_mode",
    "flax.nnx.graphlib.GRAPH_CONTEXT.graph_updates_stack": "nnx_graph_updates",
    "flax.nnx.variablelib.VARIABLE_CONTEXT.eager_shard_stack": "flax_always_shard_variable",
    "flax.nnx.variablelib.VARIABLE_CONTEXT.variable_hijax_stack": "flax_hijax_variable",
    "flax.nnx.variablelib.VARIABLE_CONTEXT.variable_ref_stack": "flax_array_ref",
}
_MISSING: Any = object()
_Ask = Callable[[Any], tuple[Any, ...]]


def _found(place: str) -> Any:
    first, *names = place.split(".")
    return functools.reduce(lambda it, name: getattr(it, name, _MISSING), names, sys.modules.get(first, _MISSING))


def asked_of(packages: Iterable[str]) -> tuple[_Ask, tuple[str, ...]]:
    """What asks `SETTINGS` for those of jax, and for those of some packages that have any; and what each is.

    Args:
      packages: the first part of the names of modules.
    """
    libraries = tuple(name for name in ("numpy", *_PLACES) if name in packages)
    places = [place for name in libraries for place in _PLACES.get(name, ())]
    places += _OF_THREAD if "flax" in libraries else ()
    return _asked_of(libraries, tuple(place for place in places if _found(place) is not _MISSING))


@functools.cache
def _asked_of(libraries: tuple[str, ...], places: tuple[str, ...]) -> tuple[_Ask, tuple[str, ...]]:
    for place in places:
        library = place.partition(".")[0]
        setattr(SETTINGS, library, sys.modules[library])
    ask: _Ask = operator.attrgetter(*JAX_SETTINGS, *places)  # it runs no Python: hits of models made anew come here

    def ask_numpy_too(settings: Any) -> tuple[Any, ...]:
        return *ask(settings), *np.geterr().values()

    names = [place.removesuffix("._values") for place in places]
    names = [*(f"jax.config.{place.removeprefix('config.').removesuffix('.value')}" for place in JAX_SETTINGS), *names]
    if "numpy" not in libraries:
        return ask, tuple(names)
    return ask_numpy_too, (*names, *(f"numpy.geterr()['{kind}']" for kind in np.geterr()))


def of_libraries() -> dict[str, str]:
    """The settings that are in force now, of each such library that is imported, as a text."""
    texts = {"numpy": repr(np.geterr())}
    for library, places in _PLACES.items():
        found = {place: value for place in places if (value := _found(place)) is not _MISSING}
        for place, name in _OF_THREAD.items() if library == "flax" else ():
            stack = _found(place)
            if stack is not _MISSING:
                found[place] = stack[-1] if stack else found.get("flax.config._values", {}).get(name)
        texts[library] = repr(found)
    return texts
