"""Equinox's modules."""

import collections
import dataclasses
import functools
import sys
import types
import weakref
from typing import Any

from partax import _core
from partax._families.fields import Description, hidden, identical, in_slots, instance_dict
from partax._jax.nodes import flatten_one_level, one_level

# Equinox keeps these on modules that wrap a function.
_WRAPPER_NAMES = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__")

jitted_by_equinox: weakref.WeakSet[types.CodeType] = weakref.WeakSet()
"""The code of functions wrapped by Equinox's `filter_jit` that partax runs; only Equinox's own warnings are issued."""


def module_class() -> type | None:
    """Equinox's `Module`; None until the user has imported Equinox."""
    return getattr(sys.modules.get("equinox"), "Module", None)


def is_module(cls: type) -> bool:
    module = module_class()
    return module is not None and issubclass(cls, module)


def describe(obj: Any) -> Description | None:
    """An Equinox module, if its registered functions do what the native stages do."""
    cls = type(obj)
    if not is_module(cls):
        return None
    fields = dataclasses.fields(cls)
    children = tuple(f.name for f in fields if not f.metadata.get("static", False))
    statics = tuple(f.name for f in fields if f.metadata.get("static", False))
    missing, attributes = _missing(), instance_dict(obj)
    if attributes is None or hidden(cls, children + statics) or in_slots(cls, children + statics):
        return None
    _core.configure(missing=missing, wrapper_names=_WRAPPER_NAMES)
    values = collections.defaultdict(lambda: missing, attributes)
    wrapper: Any = missing if len(values) == len(fields) else tuple(values[name] for name in _WRAPPER_NAMES)
    names = (*children, *(() if wrapper is missing else _WRAPPER_NAMES), *statics)
    expected = {name: values[name] for name in names if name in attributes or name in _WRAPPER_NAMES}
    leaves, aux = flatten_one_level(obj)
    rebuilt = one_level(obj).unflatten(leaves)
    is_same = (
        identical(leaves, [values[name] for name in children])
        and type(aux) is tuple
        and (aux[0] is missing if wrapper is missing else type(aux[0]) is tuple and identical(aux[0], wrapper))
        and identical(aux[1:], [values[name] for name in statics])
        and type(rebuilt) is cls
        and list(rebuilt.__dict__) == list(expected)
        and identical(rebuilt.__dict__.values(), expected.values())
    )
    return Description("module", children, statics) if is_same else None


@functools.cache
def _missing() -> Any:
    """Equinox's marker for what a module does not have, such as the names of a wrapped function."""
    probe: Any = type("Probe", (sys.modules["equinox"].Module,), {"__module__": __name__})
    return flatten_one_level(probe())[1][0]
