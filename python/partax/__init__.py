"""Filtered JAX transformations at the speed of bare jax.jit: arrays are traced, everything else is static."""

from importlib import import_module as _import_module
from os import environ as _environ
from typing import TYPE_CHECKING as _TYPE_CHECKING

from partax import _jax as _jax  # first: it refuses subinterpreters
from partax._explain import install as _explain_install
from partax._explain.explain import RetraceError, RetraceWarning, explain
from partax._families import describe as _families
from partax._families.declared import register_fields
from partax._functions.pure import declare_pure
from partax._jit import filter_jit as _filter_jit
from partax._jit.filter_jit import filter_jit
from partax._pytree.filters import by_path, is_array, is_array_like, is_inexact_array
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.partition import apply_updates, combine, filter, partition
from partax._store import install as _store_install

if _TYPE_CHECKING:
    from partax import debug as debug
    from partax import equinox as equinox
    from partax import nnx as nnx
    from partax import reports as reports
    from partax import stages as stages
    from partax import tree as tree
    from partax._doctor.doctor import doctor
    from partax._explain.function_reports import report
    from partax._io.save_and_load import load, save
    from partax._jit.jit import jit
    from partax._jit.shardings import filter_shard
    from partax._steps.steps import scan_steps
    from partax._store.switch import store
    from partax._transforms.branches import filter_cond, filter_switch
    from partax._transforms.custom_rules import filter_custom_jvp, filter_custom_vjp
    from partax._transforms.derivatives import (
        filter_grad,
        filter_hessian,
        filter_jacfwd,
        filter_jacrev,
        filter_jvp,
        filter_value_and_grad,
        filter_vjp,
    )
    from partax._transforms.loops import filter_fori_loop, filter_map, filter_scan, filter_while_loop, scan_layers
    from partax._transforms.mapped import filter_shard_map, filter_vmap
    from partax._transforms.programs import (
        filter_checkpoint,
        filter_closure_convert,
        filter_eval_shape,
        filter_io_callback,
        filter_make_jaxpr,
        filter_pure_callback,
    )

# Imported only now, since it imports modules written in C: a subinterpreter has been refused before.
__version__: str = _import_module("importlib.metadata").version("partax")
__all__ = [
    "RetraceError", "RetraceWarning", "apply_updates", "by_path",
    "combine", "declare_pure", "doctor", "explain", "filter",
    "filter_checkpoint", "filter_closure_convert", "filter_cond", "filter_custom_jvp", "filter_custom_vjp",
    "filter_eval_shape", "filter_fori_loop", "filter_grad", "filter_hessian", "filter_io_callback", "filter_jacfwd",
    "filter_jacrev", "filter_jit", "filter_jvp", "filter_make_jaxpr", "filter_map",
    "filter_pure_callback", "filter_scan", "filter_shard", "filter_shard_map", "filter_switch", "filter_value_and_grad",
    "filter_vjp", "filter_vmap", "filter_while_loop", "flat_combine", "flat_partition", "is_array", "is_array_like",
    "is_inexact_array", "jit", "load", "partition", "register_fields", "report", "save", "scan_layers",
    "scan_steps", "store",
]  # fmt: skip

_families.install()
_filter_jit.install()
_explain_install.install()
_store_install()
if _environ.get("PARTAX_STORE"):
    _import_module("partax._store.programs").store_or_warn(_environ["PARTAX_STORE"])
if _environ.get("PARTAX_JAX") == "1":
    _import_module("partax._jit.replacement").replace_jax_jit()
if _environ.get("PARTAX_EQUINOX") == "1":
    _import_module("partax.equinox").accelerate()

_MODULES = ("debug", "equinox", "nnx", "reports", "stages", "tree")
_OF_MODULES = {
    "_doctor.doctor": "doctor",
    "_io.save_and_load": "load save",
    "_jit.jit": "jit",
    "_jit.shardings": "filter_shard",
    "_explain.function_reports": "report",
    "_steps.steps": "scan_steps",
    "_store.programs": "store",  # all that the first call needs is imported when it is switched on
    "_transforms.branches": "filter_cond filter_switch",
    "_transforms.custom_rules": "filter_custom_jvp filter_custom_vjp",
    "_transforms.derivatives": "filter_grad filter_hessian filter_jacfwd filter_jacrev filter_jvp "
    "filter_value_and_grad filter_vjp",
    "_transforms.loops": "filter_fori_loop filter_map filter_scan filter_while_loop scan_layers",
    "_transforms.mapped": "filter_shard_map filter_vmap",
    "_transforms.programs": "filter_checkpoint filter_closure_convert filter_eval_shape filter_io_callback "
    "filter_make_jaxpr filter_pure_callback",
}
_LATER = {name: f"partax.{module}" for module, names in _OF_MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """What few programs need is imported when it is asked for."""
    if name in _MODULES:
        return _import_module(f"partax.{name}")
    if name in _LATER:
        value: object = getattr(_import_module(_LATER[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
