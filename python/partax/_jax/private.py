"""Names of jax that are not public, which no file outside of this folder uses.

Each is looked up by `_name` or `_attribute`, which return None for a missing one. Public names replace it then, at a
cost that a comment states.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax


def _name(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None


def _attribute(owner: Any, name: str) -> Any:
    return getattr(owner, name, None)


array_type: Any = _name("jax._src.array.ArrayImpl") or jax.Array
"""The class of arrays that are not tracers; creating one to read it would start jax's backends."""


_OF_FUNCTION = ("fun_sourceinfo", "fun_signature")  # the first fields of a `jax.jit`'s options


def _parts(jitted: Any) -> tuple[Any, tuple[str, ...], tuple[Any, ...]]:
    """The function behind a `jax.jit`, and the names and values of its options; no options if this jax does not have
    them. A copied or unpickled one has lost its attributes, so both are read from the closure of its `_cache_miss`.
    """
    wrapped, info = _attribute(jitted, "__wrapped__"), _attribute(jitted, "_jit_info")
    if wrapped is None:
        miss = inspect.unwrap(_attribute(jitted, "_cache_miss"))
        names = _attribute(_attribute(miss, "__code__"), "co_freevars") or ()
        cells: Any = dict(zip(names, _attribute(miss, "__closure__") or (), strict=True))
        wrapped, info = (cell and cell.cell_contents for cell in (cells.get("fun"), cells.get("jit_info")))
    names = _attribute(type(info), "_fields") or ()
    return (wrapped, names[2:], info[2:]) if names[:2] == _OF_FUNCTION else (wrapped, (), ())


def jit_options(jitted: Any) -> dict[str, Any] | None:
    """The options of a `jax.jit` by name, or None if this jax does not have them."""
    return dict(zip(*_parts(jitted)[1:], strict=True)) or None


def jit_parts(jitted: Any) -> tuple[Any, Any]:
    """The function behind a `jax.jit` and its options, or a new object if this jax does not have them."""
    wrapped, _, options = _parts(jitted)
    return wrapped, options or object()


def direct_call(compiled: Any) -> Callable[..., Any]:
    """The native dispatch of a `jax.stages.Compiled` that has run, or the object itself, which costs a Python call."""
    call = _attribute(compiled, "_call")
    return call if callable(call) else compiled


def context_mesh() -> Any:
    """The mesh with devices that `jax.set_mesh` has set, also in a trace, or None. With the fallback, always None,
    explanations of retraces do not name a changed mesh.
    """
    mesh = None if _concrete_mesh is None else _concrete_mesh()
    return None if mesh is None or mesh.empty else mesh


_concrete_mesh: Callable[[], Any] | None = _name("jax._src.mesh.get_concrete_mesh")


def mesh_of_call() -> Any:
    """The mesh with devices that `jax.set_mesh` has set, outside a trace; a public name of jax."""
    mesh = jax.sharding.get_mesh()
    return None if mesh.empty else mesh


trace_context: Callable[[], tuple[Any, ...]] = _name("jax._src.config.trace_context") or tuple
"""The values of all of jax's configuration that a trace depends on."""
_context_names: Callable[[], tuple[str, ...]] = _name("jax._src.config.trace_context_names") or tuple
_latest: tuple[Any, dict[str, Any]] = (None, {})


def configuration() -> dict[str, Any]:
    """The current configuration that a trace depends on, by name; the same dictionary until a value changes. The
    fallbacks use numbers as names, or have no values, so that explanations name no setting.
    """
    global _latest
    context, latest = trace_context(), _latest  # another thread may replace it
    if context != latest[0]:
        names = _context_names() if names_configuration() else range(len(context))
        _latest = latest = (context, {str(name): _plain(value) for name, value in zip(names, context, strict=True)})
    return latest[1]


def names_configuration() -> bool:
    """Whether all that a trace depends on has a name."""
    return trace_context is not tuple and len(_context_names()) == len(trace_context())


def _plain(value: Any) -> Any:
    """A configuration value as a small object that compares by content."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple) and not value:
        return None
    sizes = getattr(value, "axis_sizes", None)
    if isinstance(sizes, Mapping):  # the mapped axes of vmap and shard_map
        return str(dict(sizes)) if sizes else None
    return None if getattr(value, "empty", False) is True else str(value)


def runs_without_jit() -> bool:
    return bool(jax.config.jax_disable_jit)  # type: ignore[attr-defined]


def _has_mesh() -> bool:
    try:
        mesh_of_call()
    except ValueError:
        return False
    return True


is_untraced: Callable[[], bool] = _name("jax._src.core.trace_state_clean") or _has_mesh


def under_trace() -> bool:
    return not is_untraced()


STAGE_OF = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
"""The stages whose times jax's monitoring events report. Without these events reports have no times of lowering and
compiling, and recompilations are not reported.
"""


def plain_name(name: str) -> str:
    """A function's name, which some events report as `jit(name)`."""
    return name[4:-1] if name.startswith("jit(") else name


# Settings for caching, logging and explaining, which change no program.
_SIDE_SETTINGS = ("compilation_cache", "persistent_cache", "log_", "logging", "explain_cache_misses", "dump_")


def every_setting() -> tuple[tuple[str, str], ...]:
    """jax's configuration now, as strings. The fallback does not see the context managers of this thread."""
    states: Mapping[str, Any] = _attribute(jax.config, "_value_holders") or {}
    values = {name: state.value for name, state in states.items()} or dict(jax.config.values)
    return tuple(sorted((n, repr(v)) for n, v in values.items() if not any(part in n for part in _SIDE_SETTINGS)))


def shared_values() -> Any:
    """The keys and values that the processes of `jax.distributed` share, or None. With the fallback, programs over
    several processes are not stored.
    """
    return _attribute(_name("jax._src.distributed.global_state"), "client")
