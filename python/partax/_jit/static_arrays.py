"""Arrays in static objects: a warning of those that a program has captured, an error for objects of Flax."""

import collections
import functools
import inspect
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from partax._families.comparison import compared_fields
from partax._families.objects import attribute_of
from partax._jax.programs import open_constants
from partax._jit.options import is_of_nnx
from partax._pytree.call_site import call_site
from partax._pytree.short_text import repr_text
from partax._pytree.spec_data import SpecData, static_path

_MAX_OBJECTS = 1000  # that are looked into for one variable
_PLAIN = {bool, int, float, complex, str, bytes, type(None), types.BuiltinFunctionType}
_BY_CONTENT = (list, dict, tuple, functools.partial, types.MethodType)
_ATTRIBUTES = {types.MethodType: ("__self__",), functools.partial: ("func", "args", "keywords")}
_NOT_LOOKED_INTO = (type, types.ModuleType, types.FunctionType, jax.Array, np.ndarray)


class ArrayPlace(NamedTuple):
    path: str
    array: Any
    holder: Any  # the first object on the way that counts by identity; None if there is none


def arrays_in(path: str, value: Any) -> Iterator[ArrayPlace]:
    """The arrays in the attributes of objects, static ones too, and in the containers there; the nearest first."""
    queue: list[tuple[str, Any, Any]] = [(path, value, None)]
    ids: set[int] = set()
    for path, value, holder in queue:
        cls: Any = type(value)
        if issubclass(cls, (jax.Array, np.ndarray)):
            yield ArrayPlace(path, value, holder)
        if id(value) in ids or len(queue) > _MAX_OBJECTS or issubclass(cls, _NOT_LOOKED_INTO):
            continue
        ids.add(id(value))
        if holder is None and not issubclass(cls, _BY_CONTENT) and compared_fields(cls) is None:
            if cls.__eq__ is not object.__eq__:
                continue  # an `==` of the user's compares what a trace reads
            holder = value
        parts = _parts(value, cls)
        queue += [(path + segment, item, holder) for segment, item in parts if type(item) not in _PLAIN]


def _parts(value: Any, cls: Any) -> Iterator[tuple[str, Any]]:
    names = [name for kind, names in _ATTRIBUTES.items() if issubclass(cls, kind) for name in names]
    if names:
        yield from ((f".{name}", getattr(value, name)) for name in names)
    elif issubclass(cls, dict):
        yield from ((f"[{repr_text(key)}]", item) for key, item in list(dict.items(value)))
    elif issubclass(cls, (list, tuple, collections.deque)):
        yield from ((f"[{i}]", item) for i, item in enumerate(list(value)))
    elif cls.__module__.partition(".")[0] not in ("jax", "jaxlib"):  # a trace of jax's leads to all that it captures
        # `object.__getstate__` would do, but it stores a cache in the class, which proofs of functions compare.
        yield from ((f".{name}", item) for name, item in dict(attribute_of(value, "__dict__", ())).items())
        for base in cls.__mro__:
            slots = [name for name, entry in vars(base).items() if isinstance(entry, types.MemberDescriptorType)]
            yield from ((f".{name}", attribute_of(value, name)) for name in slots)


def is_held_by(constant: Any, array: Any) -> bool:
    if constant is array or isinstance(constant, jax.Array) or not isinstance(array, np.ndarray):
        return constant is array
    # jax keeps NumPy arrays in a wrapper of its own, or as a copy.
    is_alike = constant.shape == array.shape and constant.dtype.kind == array.dtype.kind
    return is_alike and np.array_equal(np.asarray(constant), array.astype(constant.dtype))


def arrays_in_statics(data: SpecData, name: str, function: Any) -> list[list[ArrayPlace]]:
    """The arrays whose change a call would not see, of each static value and of the called function, which is None if
    it is a value of the call: of the instance of a method, and of the arguments of a partial called `name`.
    """
    places = [
        [place._replace(path=static_path(data, index) + place.path) for place in arrays_in("", value)]
        for index, value in _objects(data)
    ]
    function = inspect.unwrap(function)
    if isinstance(function, functools.partial):
        places.append(list(arrays_in(name, function)))
    elif function is not None:
        instance = function.__self__ if isinstance(function, types.MethodType) else function
        places.append(list(arrays_in("self", instance)))
    unseen = ([place for place in of_value if place.holder is not None] for of_value in places)
    return [of_value for of_value in unseen if of_value]


def _objects(data: SpecData) -> Iterable[tuple[int, Any]]:
    """The static values that may hold others, each once, with its index."""
    objects: dict[int, tuple[int, Any]] = {}
    for index, slot in enumerate(data[1]):
        if slot and type(slot[0]) not in _PLAIN:
            objects.setdefault(id(slot[0]), (index, slot[0]))
    return objects.values()


_warned: set[tuple[Any, ...]] = set()


def warn_of_constants(record: Any, result: Any) -> None:
    """Warns once of arrays in static objects that a trace has captured."""
    if not record.static_arrays:
        return
    constants = open_constants()
    if constants is not None:
        constants += jax.tree.leaves(result)  # jax captures later those that are not tracers
    ids = set(map(id, constants or ()))
    for places in record.static_arrays:
        for path, array, holder in places:
            if not (constants is None or id(array) in ids or any(is_held_by(value, array) for value in constants)):
                continue
            name = type(holder).__qualname__
            key = (record.history.name, record.history.defined, type(holder).__module__, name, path)
            if key not in _warned:
                text = (
                    f"`{path}` is an array in a static `{name}`: it is a constant of the program, and another array "
                    f"there later is not seen. Pass the array as an argument, or make `{name}` a pytree, as an Equinox "
                    "module or with jax.tree_util.register_dataclass"
                )
                warnings.warn_explicit(text, UserWarning, *call_site())
                _warned.add(key)
            break


def refuse_static_trees(data: SpecData) -> None:
    """Raise a TypeError for a static object of Flax with arrays: the program would not see its changes."""
    for index, value in filter(lambda entry: is_of_nnx(entry[1]), _objects(data)):
        path, kind = static_path(data, index), type(value).__qualname__
        if kind == "HijaxVariable":
            remedy = "create it so, or use `partax.jit`"
            raise TypeError(f"`{path}`: found a hijax Variable of Flax, expected one with hijax=False; {remedy}")
        if next(arrays_in("", value), None) is not None:
            raise TypeError(
                f"`{path}`: found a `{kind}` of Flax with arrays as a static value, expected a pytree, whose arrays "
                "are traced; leave out `pytree=False`, make a static field dynamic, or use `partax.nnx.jit`"
            )
