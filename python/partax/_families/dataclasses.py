"""Dataclasses of `jax.tree_util.register_dataclass`, which include those of `flax.struct`."""

import dataclasses
import inspect
from typing import Any

import jax

from partax._families.fields import Description, hidden, identical, values_of
from partax._jax.nodes import flatten_one_level_with_keys, is_registered_dataclass


def describe(obj: Any) -> Description | None:
    """Describe a registered dataclass; None if jax flattens the object to anything but its fields."""
    cls = type(obj)
    if not dataclasses.is_dataclass(cls) or not is_registered_dataclass(cls):
        return None
    pairs, aux = flatten_one_level_with_keys(obj)
    children = tuple(key.name for key, _ in pairs if isinstance(key, jax.tree_util.GetAttrKey))
    statics = tuple(f.name for f in dataclasses.fields(cls) if f.init and f.name not in children)
    values = values_of(obj, children + statics)
    if values is None or not identical((*(value for _, value in pairs), *aux), values):
        return None
    return Description("dataclass", children, statics, _order_of_call(cls))


def _order_of_call(cls: type) -> tuple[str, ...]:
    """The order in which a generated `__init__` sets all fields; empty if a call of the class does anything else."""
    names = tuple(field.name for field in dataclasses.fields(cls))
    init: Any = inspect.getattr_static(cls, "__init__")
    code: Any = getattr(init, "__code__", None)
    if type(cls).__call__ is not type.__call__ or code is None or code.co_filename != "<string>":
        return ()
    parameters = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    if sorted(parameters) != sorted(names) or hasattr(cls, "__post_init__") or hidden(cls, names):
        return ()
    # The `__init__` of a frozen class calls `object.__setattr__`, and that of any other class the class's own.
    own = ("__new__",) if cls.__dataclass_params__.frozen else ("__new__", "__setattr__")  # type: ignore[attr-defined]
    return () if any(inspect.getattr_static(cls, name) is not object.__dict__[name] for name in own) else names
