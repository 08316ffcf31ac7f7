"""Classes registered with Python functions whose behavior a library or the user declares."""

import dataclasses
import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax

from partax import _core
from partax._families.equinox import is_module
from partax._families.fields import BUILT_IN, Description, hidden, identical, in_slots, instance_dict, values_of
from partax._jax import nodes

_Class = TypeVar("_Class", bound=type[Any])


def _declared(children: Sequence[str], statics: Sequence[str] = ()) -> Description:
    return Description("declared", tuple(children), tuple(statics))


def _names(fields: Description) -> tuple[str, ...]:
    return (*fields.child_names, *fields.static_names)


def _of_chex(cls: type) -> Description | None:
    """All attributes of an instance are children, sorted by name."""
    flatten, _ = nodes.registered_functions(cls)
    if not dataclasses.is_dataclass(cls) or not str(getattr(flatten, "__module__", "")).startswith("chex."):
        return None
    # chex calls `__new__` and `__post_init__` whenever it rebuilds an instance.
    if inspect.getattr_static(cls, "__new__") is not object.__dict__["__new__"] or hasattr(cls, "__post_init__"):
        return None
    return _declared(sorted(field.name for field in dataclasses.fields(cls)))


def _of_penzai(cls: type) -> Description | None:
    struct: Any = getattr(sys.modules.get("penzai.core.struct"), "Struct", None)
    if struct is None or not issubclass(cls, struct) or not dataclasses.is_dataclass(cls):
        return None
    fields = dataclasses.fields(cls)
    children = [field.name for field in fields if field.metadata.get("pytree_node", True)]
    return _declared(children, [field.name for field in fields if field.name not in children])


# As a dataclass, so that an instance may also have the axes that it caches.
_NAMED_ARRAY = Description("dataclass", ("array",), ("axis_names",), ("array", "axis_names"))
_LIBRARIES: dict[str, Callable[[type], Description | None]] = {
    "chex": _of_chex,
    "haliax": lambda cls: _NAMED_ARRAY if cls.__name__ == "NamedArray" and cls.__module__ == "haliax.core" else None,
    "jax": lambda cls: (
        _declared(("args", "keywords"), ("func",))
        if cls is jax.tree_util.Partial and cls.__base__ is functools.partial
        else None
    ),
    "penzai": _of_penzai,
}
_of_users: weakref.WeakKeyDictionary[type, Description] = weakref.WeakKeyDictionary()


def register_fields(cls: _Class, *, data_fields: Sequence[str], meta_fields: Sequence[str] = ()) -> _Class:
    """Declare which attributes of a class its registered functions flatten and unflatten, to be read without these.

    Example:
      >>> class Box:
      ...     def __init__(self, x, name):
      ...         self.x, self.name = x, name
      >>> jax.tree_util.register_pytree_node(Box, lambda box: ((box.x,), box.name), lambda name, xs: Box(*xs, name))
      >>> _ = partax.register_fields(Box, data_fields=("x",), meta_fields=("name",))
      >>> partax.filter_jit(lambda box: box)(Box(jnp.ones(2), "a")).name
      'a'

    The first instance is compared with what the functions do. An instance with other attributes is left to them.

    Args:
      cls: A class that is registered with functions, as by `jax.tree_util.register_pytree_node`; not its subclasses.
      data_fields: The attributes that are the children, in order: all in the instance's dictionary, or all in slots.
      meta_fields: The attributes that the aux data is made of, in the same place. Default: none.

    Returns:
      The class.

    Raises:
      TypeError: The class is not registered, is one that partax reads itself, or has one of the attributes elsewhere;
        or a name is not a string. When called: the registered functions do something else.
      ValueError: A name occurs twice, or the class was declared with other fields before.

    See Also: The guide "Your own classes".
    """
    for what, names in (("data_fields", data_fields), ("meta_fields", meta_fields)):
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"register_fields: found {what}={names!r}, expected a tuple of names of attributes")
    fields = _declared(data_fields, meta_fields)
    names = _names(fields)
    if len(set(names)) != len(names):
        raise ValueError(f"register_fields: found the attributes {names}, expected each once")
    if not isinstance(cls, type) or not nodes.is_tree_node(cls):
        raise TypeError(
            f"register_fields: found {cls!r}, expected a class that jax knows as a node; call "
            "`jax.tree_util.register_pytree_node` first"
        )
    name = f"`{cls.__name__}`"
    if cls in BUILT_IN or nodes.is_registered_dataclass(cls) or is_module(cls) or _of_library(cls) is not None:
        raise TypeError(f"register_fields: found {name}, which partax reads itself; expected a class of your own")
    if wrong := hidden(cls, names):
        raise TypeError(
            f"register_fields: found `{wrong}` of {name} elsewhere, expected all attributes in the dictionary of an "
            "instance, or all in `__slots__`"
        )
    if cls not in _of_users:
        _of_users[cls] = fields
        _core.read_anew(cls)
    elif (previous := _of_users[cls]) != fields:
        raise ValueError(
            f"register_fields: found {name} with {_text(fields)}, expected what was said before: {_text(previous)}"
        )
    return cls


def _text(fields: Description) -> str:
    return f"data_fields={fields.child_names} and meta_fields={fields.static_names}"


def _of_library(cls: type) -> Description | None:
    candidates = (fields_of(cls) for library, fields_of in _LIBRARIES.items() if library in sys.modules)
    return next(filter(None, candidates), None)


def describe(obj: Any) -> Description | None:
    """A class whose registered functions do what the user or a library declares, for the attributes of the object."""
    cls = type(obj)
    fields = _of_users.get(cls) or _of_library(cls)
    values = None if fields is None else values_of(obj, _names(fields))
    if fields is None or values is None:
        return None
    if fields is _NAMED_ARRAY:
        return fields
    children, aux = nodes.flatten_one_level(obj)
    if cls is jax.tree_util.Partial:
        return fields if identical((*children, aux), values) else None
    if not in_slots(cls, _names(fields)) and len(instance_dict(obj) or ()) != len(values):
        return None
    order = _set_order(obj, fields, values, tuple(children), aux)
    if isinstance(order, tuple):
        return fields._replace(set_order=order)
    if cls not in _of_users:
        return None
    return fields._replace(
        error=f"found functions of `{cls.__name__}` that do not match what `register_fields` declares, which is "
        f"{_text(fields)}: {order}; declare what they do, or change them"
    )


def _set_order(
    obj: Any, fields: Description, values: list[Any], children: tuple[Any, ...], aux: Any
) -> tuple[str, ...] | str:
    """The order in which unflattening sets the attributes, or how the registered functions differ."""
    cls, names = type(obj), _names(fields)
    with_keys = [child for _, child in nodes.flatten_one_level_with_keys(obj)[0]]
    if not identical(children, values[: len(fields.child_names)]) or not identical(with_keys, children):
        sources = {id(value): f"`{name}`" for name, value in zip(names, values, strict=True)}
        return f"the children are ({', '.join(sources.get(id(child), 'another object') for child in children)})"
    rebuilt = nodes.registered_functions(cls)[1](aux, children)
    if type(rebuilt) is not cls:
        return f"unflattening gives a `{type(rebuilt).__name__}`"
    order = names if in_slots(cls, names) else tuple(instance_dict(rebuilt) or ())
    rebuilt_values = values_of(rebuilt, names)
    if rebuilt_values is None or sorted(order) != sorted(names):
        return f"unflattening sets the attributes {order}"
    for name, before, after in zip(names, values, rebuilt_values, strict=True):
        if before is not after:
            return f"unflattening makes another `{name}`"
    object.__new__(cls)  # raises for a class whose empty instances the native stages cannot create either
    return order
