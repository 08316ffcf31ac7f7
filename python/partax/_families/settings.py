"""What the functions of libraries that are known to be pure read beside their arguments: settings, and contexts."""

import contextvars
import functools
import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from partax._jax.private import JAX_SETTINGS, SETTINGS

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
        "flax.nnx.variablelib.VariableTypeCache",
        "flax.nnx.pytreelib.DATA_REGISTRY",
        "flax.nnx.bridge.module.MODULE_CONTEXT.module_stack",
        # Of a thread: where these are empty, the configuration holds.
        "flax.nnx.graphlib.GRAPH_CONTEXT.graph_mode_stack",
        "flax.nnx.graphlib.GRAPH_CONTEXT.graph_updates_stack",
        "flax.nnx.variablelib.VARIABLE_CONTEXT.eager_shard_stack",
        "flax.nnx.variablelib.VARIABLE_CONTEXT.variable_hijax_stack",
        "flax.nnx.variablelib.VARIABLE_CONTEXT.variable_ref_stack",
    ),
}
_MISSING: Any = object()
_Ask = Callable[[Any], tuple[Any, ...]]


def _found(place: str) -> Any:
    first, *names = place.split(".")
    return functools.reduce(lambda it, name: getattr(it, name, _MISSING), names, sys.modules.get(first, _MISSING))


def _of_jaxtyping() -> tuple[Any, ...]:
    """What `jaxtyped` has bound around a call: the names of axes and structures, without the arguments' own values."""
    stack = _found("jaxtyping._storage._shape_storage.memo_stack")
    return (() if stack is _MISSING or not stack else tuple(stack[-1][:3]),)


def _of_lineax() -> tuple[Any, ...]:
    """The rules for tags that are not lineax's own."""
    rules = _found("lineax._tags.transpose_tags_rules")
    known = () if rules is _MISSING else rules
    return (tuple(rule for rule in known if getattr(rule, "__module__", "") != "lineax._tags"),)


def _in_context(module: str, name: str) -> Any:
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, contextvars.ContextVar) else None


# What holds NumPy's settings, where this NumPy has it so.
_ERRORS = _in_context("numpy._core.umath", "_extobj_contextvar")
_PRINTING = _in_context("numpy._core.printoptions", "format_options")
_of_numpy_last: tuple[Any, ...] = _MISSING, _MISSING, ()


def _of_numpy() -> tuple[Any, ...]:
    """Asked for each function made anew, since each array leads to NumPy: anew only where it holds another object."""
    global _of_numpy_last
    if _ERRORS is None or _PRINTING is None:
        return _ask_numpy()
    errors, printing, answers = _of_numpy_last
    if errors is not _ERRORS.get(None) or printing is not _PRINTING.get(None):
        answers = _ask_numpy()
        _of_numpy_last = _ERRORS.get(None), _PRINTING.get(None), answers
    return answers


def _ask_numpy() -> tuple[Any, ...]:
    return tuple(np.geterr().values()), tuple(np.get_printoptions().values()), np.geterrcall()


# By the name of the library, what asks it, and what each answer is.
_CALLED: dict[str, tuple[Callable[[], tuple[Any, ...]], tuple[str, ...]]] = {
    "numpy": (
        _of_numpy,
        ("numpy.geterr()", "numpy.get_printoptions()", "numpy.geterrcall()"),
    ),
    "jaxtyping": (_of_jaxtyping, ("what jaxtyped has bound",)),
    "lineax": (_of_lineax, ("lineax.transpose_tags_rules",)),
}
_LIBRARIES = tuple(dict.fromkeys((*_CALLED, *_PLACES)))


def asked_of(packages: Iterable[str]) -> tuple[_Ask, tuple[str, ...]]:
    """What asks `SETTINGS` for those of jax and of packages, by the first part of modules' names; and what each is."""
    libraries = tuple(name for name in _LIBRARIES if name in packages)
    places = (place for name in libraries for place in _PLACES.get(name, ()))
    return _asked_of(libraries, tuple(place for place in places if _found(place) is not _MISSING))


@functools.cache
def _asked_of(libraries: tuple[str, ...], places: tuple[str, ...]) -> tuple[_Ask, tuple[str, ...]]:
    for place in places:
        library = place.partition(".")[0]
        setattr(SETTINGS, library, sys.modules[library])
    # It runs no Python: hits of models made anew come here.
    ask: _Ask = operator.attrgetter("tracer", *JAX_SETTINGS, *places)
    called = [_CALLED[name] for name in libraries if name in _CALLED]

    def ask_more(settings: Any) -> tuple[Any, ...]:
        return sum((answers() for answers, _ in called), ask(settings))

    def ask_numpy(settings: Any) -> tuple[Any, ...]:
        return ask(settings) + _of_numpy()

    names = ["jax.core.Tracer"]
    names += [f"jax.config.{place.removeprefix('config.').removesuffix('.value')}" for place in JAX_SETTINGS]
    names += [place.removesuffix("._values") for place in places]
    asked = ask_numpy if len(called) == 1 and called[0][0] is _of_numpy else ask_more if called else ask
    return asked, (*names, *(name for _, of_answers in called for name in of_answers))


def of_libraries() -> dict[str, Any]:
    """The settings that are in force now, of all such libraries that are imported."""
    ask, names = asked_of(_LIBRARIES)
    found = zip(names, ask(SETTINGS), strict=True)
    return {name: value for name, value in found if not name.startswith("jax.")}


def texts_of_libraries() -> dict[str, str]:
    return {name: repr(_in_order(value)) for name, value in of_libraries().items()}


def _in_order(value: Any) -> Any:
    """A set or dictionary as another process writes it too."""
    if isinstance(value, (set, dict)):
        return sorted(map(repr, value.items() if isinstance(value, dict) else value))
    return value
