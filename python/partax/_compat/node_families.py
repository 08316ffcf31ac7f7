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
from partax._compat.jax_private import concrete_array_type, ref_types, registered_nodes

# (kind, names of the children, names of the static fields)
Description = tuple[str, tuple[str, ...], tuple[str, ...]]

_REGISTRY = jax.tree_util.default_registry
_LEAVES = (
    ("jax_array", (concrete_array_type(), jax.Array)),
    ("numpy_array", np.ndarray),
    ("numpy_scalar", np.generic),
    ("ref", ref_types()),
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
    """An Equinox module, if its registered flatten function does what the native one does."""
    cls = type(obj)
    fields = dataclasses.fields(cls)
    children = tuple(f.name for f in fields if not f.metadata.get("static", False))
    statics = tuple(f.name for f in fields if f.metadata.get("static", False))
    if not _plain_instance_dict(obj, children + statics):
        return None
    _core.configure_tree(missing=_missing(), wrapper_names=_WRAPPER_NAMES)
    values = obj.__dict__
    missing = _missing()
    plain = len(values) == len(fields)
    wrapper = missing if plain else tuple(values.get(name, missing) for name in _WRAPPER_NAMES)
    found, aux = _REGISTRY.flatten_one_level(obj)
    expected = [values.get(name, missing) for name in children]
    expected_aux = [wrapper, *(values.get(name, missing) for name in statics)]
    if not _identical(found, expected) or not isinstance(aux, tuple) or len(aux) != len(expected_aux):
        return None
    same_wrapper = aux[0] is missing if plain else _identical(aux[0], expected_aux[0])
    if not same_wrapper or not _identical(aux[1:], expected_aux[1:]):
        return None
    return ("module", children, statics)


def _missing() -> Any:
    """Equinox's marker of an absent field, as its flatten functions give it."""
    from equinox._module import _flatten

    return _flatten.MISSING


def _identical(left: Any, right: Any) -> bool:
    left, right = list(left), list(right)
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def _describe_dataclass(obj: Any) -> Description | None:
    """A class of `jax.tree_util.register_dataclass`, if reading its fields gives what jax gives."""
    cls = type(obj)
    if not dataclasses.is_dataclass(cls):
        return None
    try:
        pairs, aux = _REGISTRY.flatten_one_level_with_keys(obj)
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
    return "register_dataclass" in getattr(flatten, "__qualname__", "")


def _describe_node(obj: Any) -> Description:
    native = _describe_module(obj) if is_module(type(obj)) else _describe_dataclass(obj)
    return native or ("registered", (), ())


def _leaf_sort(obj: Any, cls: type) -> str:
    # Of the class, since asking an object runs code of its own; only jax decides by tracer.
    if issubclass(cls, Tracer):
        return "tracer"
    for sort, kinds in _LEAVES:
        if issubclass(cls, kinds):
            return sort
    return "jax_array" if cls.__module__.startswith("jax") and isinstance(obj, jax.Array) else "other"


def describe(obj: Any) -> Description:
    """Describes the type of `obj` for the native type table."""
    cls = type(obj)
    if cls in (_core.FlatSpec, _core.Static):
        return ("static", (), ())
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and cls not in (registered_nodes() or ()):
        return ("named_tuple", tuple(cls._fields), ())  # type: ignore[attr-defined]
    if _REGISTRY.is_node(cls):
        return _describe_node(obj)
    return (_leaf_sort(obj, cls), (), ())


def one_level(node: Any) -> Any:
    """The treedef of a node whose children are leaves, by which the node is rebuilt."""
    # Everything but the root, which is asked about first, is a leaf; also the node itself where it is its own child.
    is_root = iter((True,))
    return jax.tree.structure(node, is_leaf=lambda _: not next(is_root, False))


def treedef_of(cls: type, aux: Any, num_children: int) -> Any:
    """The treedef of a node of `cls` with this aux data, whose children are leaves."""
    leaf = jax.tree.structure(0)
    return jax.tree_util.PyTreeDef.from_node_data_and_children(_REGISTRY, (cls, aux), [leaf] * num_children)


def simple_key(entry: Any) -> str:
    """An entry of a path without punctuation."""
    return jax.tree_util.keystr((entry,), simple=True)


def is_inexact(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def _identity(x: Any) -> Any:
    return x


def install() -> None:
    """Connects the native stages with jax. Called once, when partax is imported."""
    _core.configure_base(
        default_dict=collections.defaultdict,
        registry=_REGISTRY,
        jax_array=jax.Array,
        jax_array_type=concrete_array_type(),
        registered=registered_nodes(),
    )
    _core.configure_statics(
        partial=functools.partial,
        jitted=type(jax.jit(_identity)),
        treedef=jax.tree_util.PyTreeDef,
    )
