"""The names of jax that are not public of which its configuration is read."""

from collections.abc import Mapping
from typing import Any

import jax

from partax._jax.private import attribute_of as _attribute
from partax._jax.private import name_of as _name


class Settings:
    """The values of jax's configuration that a trace can read, but jax.jit does not look at, as attributes."""


# Parts of names of what only says how programs are compiled, kept, checked, sent or logged, and how jax begins.
_PARTS = """
cache log pgle traceback timeout visible distributed collectives dump export mock cross_host mosaic pallas guard
optimization pjrt recoverability preemption pprint proxy serialization source_url metadata magma fitting effort memory
share_binary jax2tf tracer_leaks captured_constants disallow_mesh cusparse_lowering remat_pass async_dispatch
sort_devices num_cpu_devices backend_target xla_backend mtls leaked
"""
# Of what a trace depends on, as jax says: its jit does not look at these.
_NOT_OF_JIT = {"jax_high_dynamic_range_gumbel", "jax_mutable_array_checks"}
_OF_COMPILING = _PARTS.split()


def _settings() -> tuple[Any, tuple[str, ...]]:
    """The settings, and where the value of each is. The fallback knows of what is public: random numbers' kind."""
    states: Mapping[str, Any] = _attribute(jax.config, "_value_holders") or {}
    names = _name("jax._src.config.trace_context_names")
    known = () if names is None else set(names()) - _NOT_OF_JIT
    settings = Settings()
    for name, state in states.items():
        if name not in known and hasattr(state, "value") and not any(part in name for part in _OF_COMPILING):
            setattr(settings, name, state)
    if not vars(settings):
        settings.config = jax.config  # type: ignore[attr-defined]
        return settings, ("config.jax_default_prng_impl", "config.jax_enable_custom_prng")
    return settings, tuple(f"{name}.value" for name in vars(settings))


SETTINGS, JAX_SETTINGS = _settings()
SETTINGS.tracer = jax.core.Tracer  # type: ignore[attr-defined]  # whose methods are those of all arrays in a trace


# What says how programs are kept, logged or explained, and changes none.
_OF_KEEPING = ("compilation_cache", "persistent_cache", "log_", "logging", "explain_cache_misses", "dump_")


def every_setting() -> tuple[tuple[str, str], ...]:
    """The values of jax's configuration that are in force now, as texts.

    The fallback does not see what a context manager has set for this thread.
    """
    states: Mapping[str, Any] = _attribute(jax.config, "_value_holders") or {}
    values = {name: state.value for name, state in states.items()} or dict(jax.config.values)
    return tuple(sorted((n, repr(v)) for n, v in values.items() if not any(part in n for part in _OF_KEEPING)))
