"""The only file that uses names of jax that are not public; each has a public fallback."""

import contextlib
import functools
import logging
import operator
from collections.abc import Callable, Mapping
from typing import Any

import jax


def registered_nodes() -> dict[type, Any] | None:
    """jax's dictionary of registered node types, or None where this jax has none.

    Its length tells when a class has been registered after partax saw it as a leaf. Without it, a class has to be
    registered before its first use in a filtered call.
    """
    try:
        from jax._src.tree_util import _registry
    except ImportError:
        return None
    return _registry if isinstance(_registry, dict) else None


def concrete_array_type() -> type:
    """The type of concrete arrays, `jaxlib`'s ArrayImpl.

    The fallback finds it by making an array, which starts jax's backends.
    """
    try:
        from jax._src.array import ArrayImpl
    except ImportError:
        return type(jax.numpy.zeros(()))
    return ArrayImpl


def ref_types() -> tuple[type, ...]:
    """The types of mutable array references, which jax.jit traces though they are no `jax.Array`."""
    public = getattr(jax, "Ref", None) or getattr(getattr(jax, "ref", None), "Ref", None)
    if isinstance(public, type):
        return (public,)
    try:
        from jax._src.core import Ref
    except ImportError:
        return ()
    return (Ref,) if isinstance(Ref, type) else ()


# Where the function is from, which is no option but a part of the function itself.
_NO_OPTIONS = ("fun_sourceinfo", "fun_signature")
_NEEDED_OPTIONS = {"static_argnums", "donate_argnums", "inline", "keep_unused", "in_shardings_leaves"}


@functools.cache
def _options_reader(cls: type) -> Callable[[Any], tuple[Any, ...]] | None:
    names = [name for name in getattr(cls, "_fields", ()) if name not in _NO_OPTIONS]
    return operator.attrgetter(*names) if set(names) >= _NEEDED_OPTIONS else None


def jit_parts(jitted: Any) -> tuple[Any, Any] | None:
    """The function behind a `jax.jit` and all its options, or None where this jax does not tell them.

    Without them two such functions are one static value only if they are one object.
    """
    info = getattr(jitted, "_jit_info", None)
    read = _options_reader(type(info))
    return None if read is None else (jitted.__wrapped__, read(info))


def jit_options(jitted: Any) -> dict[str, Any] | None:
    """The options of a `jax.jit` by name, or None where this jax does not tell them."""
    info: Any = getattr(jitted, "_jit_info", None)
    if _options_reader(type(info)) is None:
        return None
    return {name: value for name, value in info._asdict().items() if name not in _NO_OPTIONS}


def direct_call(compiled: Any) -> Callable[..., Any]:
    """What a `jax.stages.Compiled` calls once it has run: jax's native dispatch, where there is one.

    The fallback is the compiled function itself, which costs a Python call more.
    """
    call = getattr(compiled, "_call", None)
    return call if callable(call) else compiled


def is_committed(array: jax.Array) -> bool:
    """Whether an array is bound to its devices; True where this jax does not tell."""
    return bool(getattr(array, "_committed", True))


def context_mesh() -> Any:
    """The mesh with devices that `jax.set_mesh` has set, also while a function is traced; None where there is none.

    The fallback knows of none.
    """
    try:
        from jax._src.mesh import get_concrete_mesh
    except ImportError:
        return None
    mesh: Any = get_concrete_mesh()
    return None if mesh is None or mesh.empty else mesh


_latest: tuple[Any, dict[str, Any]] = (None, {})


def configuration() -> dict[str, Any]:
    """The configuration that a trace depends on now, by name; the same dictionary as long as nothing changes.

    The fallback knows a few public options only.
    """
    global _latest
    try:
        from jax._src.config import trace_context, trace_context_names

        context, names = trace_context(), trace_context_names()
    except (ImportError, NotImplementedError):
        names = ("jax_disable_jit", "jax_enable_x64", "jax_default_matmul_precision", "jax_default_device")
        context = tuple(getattr(jax.config, name, None) for name in names)
    latest = _latest  # another thread may replace it
    if context != latest[0]:
        _latest = latest = (context, {name: _plain(value) for name, value in zip(names, context, strict=True)})
    return latest[1]


def _plain(value: Any) -> Any:
    """A configuration value as something small that compares by what it says."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple) and not value:
        return None
    sizes = getattr(value, "axis_sizes", None)
    if isinstance(sizes, Mapping):  # the mapped axes of vmap and shard_map
        return str(dict(sizes)) if sizes else None
    return None if getattr(value, "empty", False) is True else str(value)


def is_jaxpr(value: Any) -> bool:
    """Whether a parameter of an equation is a program itself."""
    return hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns")


def only_unexplained_misses(explained: Callable[[], bool]) -> None:
    """Keeps those of jax's own explanations of cache misses from its log that are `explained` better.

    Without a fallback: then both are in the log.
    """
    with contextlib.suppress(ImportError):
        from jax._src.interpreters import partial_eval

        logging.getLogger(partial_eval.__name__).addFilter(lambda _: not explained())


def under_trace() -> bool | None:
    """Whether some function is being traced in this thread; None where this jax does not tell."""
    try:
        from jax._src.core import trace_state_clean
    except ImportError:
        return None
    return not trace_state_clean()
