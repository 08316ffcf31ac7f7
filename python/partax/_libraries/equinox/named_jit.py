"""What haliax's `named_jit` returns, as a `filter_jit` whose shardings follow from the names of axes."""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from haliax import partitioning, tree_util  # pyright: ignore[reportMissingImports]
from jax.sharding import NamedSharding

from partax import _core
from partax._core import JitFunction
from partax._families.equinox import jitted_by_equinox
from partax._families.equinox_private import named_jit_fields
from partax._families.objects import cached_by_identity
from partax._jax.private import mesh_of_call, under_trace
from partax._jit.options import Options, names_of
from partax._jit.shardings import PrefixOfValue


@dataclass(frozen=True)
class _ByAxes(PrefixOfValue):
    """The shardings that haliax infers, on the mesh of the call."""

    mapping: Any
    mesh: Any

    def of(self, value: Any) -> Any:
        specs = partitioning.pspec_for(value, dict(self.mapping))
        on_mesh = functools.partial(NamedSharding, self.mesh)
        return tree_util.tree_map(lambda _, spec: None if spec is None else on_mesh(spec), value, specs)


def jit_function_of(wrapper: Any) -> Callable[..., Any] | None:
    """Our function for a call of what `named_jit` returned, by the mapping and mesh in force; None if haliax's own."""
    if under_trace() or (parts := _parts(wrapper)) is None:
        return None
    fun, mapping, in_mapping, out_mapping, *options = parts
    mapping = _items(partitioning.current_thread_local_mapping()) if mapping is None else mapping
    out_mapping = mapping if out_mapping is None else out_mapping
    mesh = mesh_of_call()
    if mesh is None and (in_mapping, out_mapping) != (None, None):
        return None  # it has another mesh, or raises an error
    return functools.partial(_jit_function(mapping, in_mapping, out_mapping, mesh, *options), fun)


def _items(mapping: Any) -> tuple[Any, ...] | None:
    if mapping is None:
        return None
    return tuple([(name, tuple(axes) if isinstance(axes, list) else axes) for name, axes in mapping.items()])


@cached_by_identity
def _parts(wrapper: Any) -> tuple[Any, ...] | None:
    fields = named_jit_fields(wrapper)
    if fields is None:
        return None
    fun, *mappings, by_position, by_name, options = fields
    flags = [by_position] if isinstance(by_position, bool) else list(by_position or ())
    by_name = dict(by_name or {})
    is_simple = all(isinstance(flag, bool) for flag in (*flags, *by_name.values()))
    if not is_simple or not options.keys() <= {"inline", "keep_unused"}:
        return None
    donate = ["args"] if by_position is True else [i for i, flag in enumerate(flags, 1) if flag]  # after the function
    donate += [name for name, flag in by_name.items() if flag]
    return fun, *map(_items, mappings), names_of(fun), tuple(donate) or "none", tuple(options.items())


@functools.lru_cache(4096)
def _jit_function(
    mapping: Any, in_mapping: Any, out_mapping: Any, mesh: Any, names: tuple[str, str], donate: Any, options: Any
) -> JitFunction[..., Any]:
    def call(fun: Any, /, *args: Any, **kwargs: Any) -> Any:
        with contextlib.nullcontext() if mapping is None else partitioning.axis_mapping(dict(mapping)):
            return fun(*args, **kwargs)

    call.__name__, call.__qualname__ = names
    jitted_by_equinox.add(call.__code__)
    inputs, outputs = (None if items is None else _ByAxes(items, mesh) for items in (in_mapping, out_mapping))
    of_jit: dict[str, Any] = {"in_shardings": inputs, "out_shardings": outputs, **dict(options)}
    return _core.make_jit_function(call, Options(donate=donate, donates_returned=True, **of_jit))
