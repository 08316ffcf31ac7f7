"""The family of each type for the native stages: a kind of leaf, or a kind of node."""

import collections
import functools
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._families import dataclasses, declared, equinox, flax
from partax._families.comparison import traits
from partax._families.fields import BUILT_IN, Description
from partax._families.objects import attempt
from partax._jax.nodes import flatten_one_level, is_tree_node, registered_functions, registered_nodes
from partax._jax.private import array_type

_LEAVES = (
    ("tracer", Tracer),
    ("jax_array", (array_type, jax.Array)),
    ("numpy_array", np.ndarray),
    ("numpy_scalar", np.generic),
    ("ref", jax.Ref),
    ("abstract", jax.ShapeDtypeStruct),
    ("float", (float, complex)),
    ("int", int),
)


def is_frozen(cls: type) -> bool:
    """Whether tuples, modules or dataclasses of this type never change, and have no attributes outside of the tree."""
    if issubclass(cls, tuple):
        return cls.__dictoffset__ == 0
    owner = next(base for base in cls.__mro__ if "__setattr__" in base.__dict__)
    params: Any = owner.__dict__.get("__dataclass_params__")
    is_frozen_dataclass = params is not None and params.frozen and all(field.init for field in fields(cls))
    return is_frozen_dataclass or owner is equinox.module_class()


def _leaf_sort(obj: Any, cls: type) -> str:
    # `issubclass`, since `isinstance` reads `obj.__class__`, which can run code of the object.
    for sort, kinds in _LEAVES:
        if issubclass(cls, kinds):
            return sort
    if not cls.__module__.startswith("jax") or not isinstance(obj, jax.Array):
        return "other"
    if array_type is jax.Array and not jnp.issubdtype(obj.dtype, jax.dtypes.extended):
        _core.configure(jax_array_type=cls)
    return "jax_array"


def describe_type(obj: Any) -> Description:
    """Describe the class of an object. Called by the native type table, at the first instance."""
    cls = type(obj)
    if type(cls) is type and cls in BUILT_IN:
        return Description(BUILT_IN[cls])
    description = _describe(obj, cls)
    names = (*description.child_names, *description.static_names)
    order = tuple(names.index(name) for name in description.set_order if name in names)
    return description._replace(set_order=order, traits=traits(cls))


def _describe(obj: Any, cls: type) -> Description:
    if cls in (_core.FlatSpec, _core.Static):
        return Description("static")
    registered = registered_nodes()
    if registered is not None and issubclass(cls, tuple) and hasattr(cls, "_fields") and cls not in registered:
        fields: Any = cls._fields  # type: ignore[attr-defined]
        return Description("named_tuple", tuple(fields), (), fields if _creates_tuple(cls) else (), is_frozen(cls))
    if not is_tree_node(cls):
        return Description(_leaf_sort(obj, cls))
    # They raise for another version of a library, or a class that overrides its methods.
    descriptions = (attempt(None, family.describe, obj) for family in (equinox, dataclasses, flax, declared))
    description = next(filter(None, descriptions), Description("registered"))
    flatten, unflatten = registered_functions(cls)
    return description._replace(is_frozen=is_frozen(cls), flatten=flatten, unflatten=unflatten)


def _creates_tuple(cls: type) -> bool:
    """Whether a call of a NamedTuple class only creates the tuple: its `__new__` is what `collections` generates."""
    names: Any = getattr(cls.__new__, "__globals__", {})
    is_generated = names.get("__builtins__") == {} and "_tuple_new" in names
    return type(cls) is type and cls.__init__ is object.__init__ and is_generated


def is_inexact(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def install() -> None:
    """Pass the native stages the objects of Python and jax that they use. Called once, when partax is imported."""
    _core.configure(
        default_dict=collections.defaultdict,
        flatten_one_level=flatten_one_level,
        is_node=is_tree_node,
        jax_array=jax.Array,
        jax_array_type=None if array_type is jax.Array else array_type,
        registered=registered_nodes(),
        partial=functools.partial,
        jitted=type(jax.jit(len)),
        tree_def=jax.tree_util.PyTreeDef,
    )
