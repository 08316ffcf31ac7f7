"""Tells the native stages how to read each type: as which leaf, or as which family of nodes."""

import collections
import dataclasses
import functools
import inspect
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._compat.families import flax
from partax._compat.jax_private import (
    concrete_array_type,
    flatten_one_level,
    flatten_one_level_with_keys,
    one_level,
    registered_nodes,
)

# (kind, names of the children, names of the static fields)
Description = tuple[str, tuple[str, ...], tuple[str, ...]]

_LEAVES = (
    ("jax_array", (*filter(None, (concrete_array_type(),)), jax.Array)),
    ("numpy_array", np.ndarray),
    ("numpy_scalar", np.generic),
    ("ref", jax.Ref),
    ("abstract", jax.ShapeDtypeStruct),
    ("float", (float, complex)),
    ("int", int),
)
# Equinox keeps these on modules that wrap a function.
_WRAPPER_NAMES = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__")


def _equinox() -> Any:
    """Equinox, if the user has imported it: only then can there be modules of it."""
    return sys.modules.get("equinox")


def module_class() -> type | None:
    """Equinox's `Module`; None until the user has imported Equinox."""
    return getattr(_equinox(), "Module", None)


def is_module(cls: type) -> bool:
    """Whether a class is an Equinox module."""
    module = module_class()
    return module is not None and issubclass(cls, module)


def _plain_instance_dict(obj: Any, names: tuple[str, ...]) -> bool:
    """Whether the fields live in the instance dictionary, where the native stages read them."""
    cls = type(obj)
    if not isinstance(getattr(obj, "__dict__", None), dict):
        return False
    for name in names:
        on_class = inspect.getattr_static(cls, name, None)
        if hasattr(type(on_class), "__set__"):
            return False
    return True


def _describe_module(obj: Any) -> Description | None:
    """An Equinox module, if its registered functions do what the native stages do."""
    cls = type(obj)
    fields = dataclasses.fields(cls)
    children = tuple(f.name for f in fields if not f.metadata.get("static", False))
    statics = tuple(f.name for f in fields if f.metadata.get("static", False))
    missing = _missing()
    if missing is None or not _plain_instance_dict(obj, children + statics):
        return None
    _core.configure_tree(missing=missing, wrapper_names=_WRAPPER_NAMES)
    values = dict(obj.__dict__)
    given = [(name, values[name]) for name in children if name in values]
    wrapper: Any = missing
    if len(values) != len(fields):
        wrapper = tuple(values.get(name, missing) for name in _WRAPPER_NAMES)
        given += zip(_WRAPPER_NAMES, wrapper, strict=True)
    given += [(name, values[name]) for name in statics if name in values]
    try:
        found, aux = flatten_one_level(obj)
        again = one_level(obj).unflatten(found)
    except Exception:
        return None
    if not _identical(found, [values.get(name, missing) for name in children]):
        return None
    if type(aux) is not tuple or len(aux) != 1 + len(statics) or type(again) is not cls:
        return None
    if not (aux[0] is missing if wrapper is missing else type(aux[0]) is tuple and _identical(aux[0], wrapper)):
        return None
    if not _identical(aux[1:], [values.get(name, missing) for name in statics]):
        return None
    rebuilt = again.__dict__
    if list(rebuilt) != [name for name, _ in given] or not _identical(rebuilt.values(), [value for _, value in given]):
        return None
    return ("module", children, statics)


@functools.cache
def _missing() -> Any:
    """Equinox's marker of an absent field, as its flatten functions give it; None where they do not as expected.

    A module without its field tells it, and which names Equinox keeps of wrapped modules.
    """
    module: Any = _equinox().Module

    class Probe(module):
        field: Any

    empty = object.__new__(Probe)
    wrapper = tuple(object() for _ in _WRAPPER_NAMES)
    try:
        missing: Any = flatten_one_level(empty)[0][0]
        empty.__dict__.update(zip(_WRAPPER_NAMES, wrapper, strict=True))
        kept: Any = flatten_one_level(empty)[1][0]
    except Exception:
        return None
    return missing if type(kept) is tuple and _identical(kept, wrapper) else None


def _identical(left: Any, right: Any) -> bool:
    left, right = list(left), list(right)
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def _describe_dataclass(obj: Any) -> Description | None:
    """A class of `jax.tree_util.register_dataclass`, if reading its fields gives what jax gives."""
    cls = type(obj)
    if not dataclasses.is_dataclass(cls):
        return None
    try:
        pairs, aux = flatten_one_level_with_keys(obj)
    except Exception:
        return None
    children = tuple(key.name for key, _ in pairs if isinstance(key, jax.tree_util.GetAttrKey))
    if len(children) != len(pairs) or not isinstance(aux, tuple):
        return None
    statics = tuple(f.name for f in dataclasses.fields(cls) if f.init and f.name not in children)
    if not _plain_instance_dict(obj, children + statics) or not _is_native_dataclass(cls):
        return None
    values = obj.__dict__
    if any(name not in values for name in children + statics):
        return None
    if not _identical([value for _, value in pairs], [values[name] for name in children]):
        return None
    if not _identical(aux, [values[name] for name in statics]):
        return None
    return ("dataclass", children, statics)


def _is_native_dataclass(cls: type) -> bool:
    """Whether jax itself rebuilds the class by calling it with its fields, as `register_dataclass` arranges."""
    registered = registered_nodes()
    entry = None if registered is None else registered.get(cls)
    flatten = getattr(entry, "to_iter", None)
    return "register_dataclass" in getattr(flatten, "__qualname__", "") and _calls_dataclasses()


def is_frozen(cls: type) -> bool:
    """Whether tuples, modules or dataclasses of this type never change, and hold nothing but what a tree has."""
    if issubclass(cls, tuple):
        return cls.__dictoffset__ == 0
    owner = next(base for base in cls.__mro__ if "__setattr__" in base.__dict__)
    if owner is getattr(_equinox(), "Module", None):
        return True
    params: Any = owner.__dict__.get("__dataclass_params__")
    return params is not None and params.frozen and all(field.init for field in dataclasses.fields(cls))


@functools.cache
def _calls_dataclasses() -> bool:
    """Whether jax rebuilds such a class by calling it, and does not set the fields of an empty instance."""
    made: list[Any] = []

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(init=False)
    class Probe:
        field: Any

        def __init__(self, field: Any):
            made.append(field)
            self.field = field

    jax.tree.map(_identity, Probe(0))
    return len(made) == 2


def _describe_node(obj: Any) -> Description:
    native = _describe_module(obj) if is_module(type(obj)) else _describe_dataclass(obj) or flax.describe(obj)
    return native or ("registered", (), ())


def _leaf_sort(obj: Any, cls: type) -> str:
    # Of the class, since asking an object runs code of its own; only jax decides by tracer.
    if issubclass(cls, Tracer):
        return "tracer"
    for sort, kinds in _LEAVES:
        if issubclass(cls, kinds):
            return sort
    if not cls.__module__.startswith("jax") or not isinstance(obj, jax.Array):
        return "other"
    if concrete_array_type() is None and not jnp.issubdtype(obj.dtype, jax.dtypes.extended):
        _configure_base(cls)
    return "jax_array"


def describe(obj: Any) -> Description:
    """Describes the type of `obj` for the native type table."""
    cls = type(obj)
    if cls in (_core.FlatSpec, _core.Static):
        return ("static", (), ())
    registered = registered_nodes()
    if registered is not None and issubclass(cls, tuple) and hasattr(cls, "_fields") and cls not in registered:
        return ("named_tuple", tuple(cls._fields), ())  # type: ignore[attr-defined]
    if jax.tree_util.is_tree_node(cls):
        return _describe_node(obj)
    return (_leaf_sort(obj, cls), (), ())


def layout(cls: type) -> flax.Layout | None:
    """The layout of a class that is described as one with entries."""
    return flax.layout(cls)


def simple_key(entry: Any) -> str:
    """An entry of a path without punctuation."""
    return jax.tree_util.keystr((entry,), simple=True)


def is_inexact(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def _identity(x: Any) -> Any:
    return x


def _configure_base(jax_array_type: type | None) -> None:
    _core.configure_base(
        default_dict=collections.defaultdict,
        flatten_one_level=flatten_one_level,
        flatten_one_level_with_keys=flatten_one_level_with_keys,
        is_node=jax.tree_util.is_tree_node,
        jax_array=jax.Array,
        jax_array_type=jax_array_type,
        registered=registered_nodes(),
    )


def install() -> None:
    """Connects the native stages with jax. Called once, when partax is imported."""
    _configure_base(concrete_array_type())
    _core.configure_statics(
        partial=functools.partial,
        jitted=type(jax.jit(_identity)),
        treedef=jax.tree_util.PyTreeDef,
    )
