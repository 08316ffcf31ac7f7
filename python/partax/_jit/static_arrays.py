"""Arrays in static objects: a warning of those that a program has captured, an error for objects of Flax."""

import collections
import contextlib
import functools
import inspect
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from partax import _core
from partax._functions.classes import compares_fields
from partax._functions.installed import is_installed
from partax._functions.objects import attribute_of, entries_of, is_written_in_c, mro_of
from partax._jax.programs import open_constants
from partax._pytree.call_site import call_site
from partax._pytree.spec_data import FIELD, VALUE, SpecData, details, leaf_paths, repr_text, static_path

_MAX_OBJECTS = 1000  # that are looked into for one variable
_MAX_WRAPPERS = 100
_MAX_COMPARED = 1 << 22
_PLAIN = {bool, int, float, complex, str, bytes, type(None), types.BuiltinFunctionType}
_BY_CONTENT = (list, dict, tuple, functools.partial, types.MethodType)
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
        if holder is None and not _counts_by_content(cls):
            holder = value
        if holder is not None and _core.node_kind(value) not in ("static_leaf", "list", "tuple", "dict"):
            with contextlib.suppress(Exception):  # it is not an argument: partax may be unable to flatten it
                described, leaves = _core.describe_tree(value, path)
                statics = [(at, item) for at, kind, item in details(described) if kind in (VALUE, FIELD)]
                places = [*zip(leaf_paths(described), leaves, strict=True), *statics]
                queue += [(inner, item, holder) for inner, item in places if type(item) not in _PLAIN]
                continue
        compared = _compared_attributes(cls) if holder is value else ()
        for segment, item in _parts(value, cls):
            is_compared = segment in compared and isinstance(item, (jax.Array, np.ndarray))
            if type(item) not in _PLAIN:
                queue.append((path + segment, item, None if is_compared else holder))


def _counts_by_content(cls: Any) -> bool:
    """Whether a static value of this class with other parts is another one for the key of a call."""
    return issubclass(cls, _BY_CONTENT) or compares_fields(cls)


def _compared_attributes(cls: Any) -> set[str]:
    """Of a class with an `==` of its own, the attributes that this reads, as far as the class's own code tells."""
    if cls.__eq__ is object.__eq__:
        return set()
    names, queue = set[str](), ["__eq__", "__hash__"]
    for name in queue:
        function = inspect.getattr_static(cls, name, None)
        function = function.fget if isinstance(function, property) else function
        if isinstance(function, types.FunctionType):
            queue += set(function.__code__.co_names) - names
            names.update(function.__code__.co_names)
    return {f".{name}" for name in names}


def _parts(value: Any, cls: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, by the segments of its paths."""
    if issubclass(cls, types.MethodType):
        yield ".__self__", value.__self__
    elif issubclass(cls, functools.partial):
        yield ".func", value.func
        yield from ((f".args[{i}]", item) for i, item in enumerate(value.args))
        yield from ((f".keywords[{name!r}]", item) for name, item in value.keywords.items())
    elif issubclass(cls, dict):
        yield from ((f"[{repr_text(key)}]", item) for key, item in list(dict.items(value)))
    elif issubclass(cls, (list, tuple)):
        own = list if issubclass(cls, list) else tuple
        yield from ((f"[{i}]", item) for i, item in enumerate(own.__getitem__(value, slice(None))))
    elif issubclass(cls, collections.deque):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    if cls.__module__.partition(".")[0] in ("jax", "jaxlib"):  # a trace of jax's leads to all that it has captured
        return
    attributes = attribute_of(value, "__dict__")
    if type(attributes) is dict:
        yield from ((f".{name}", item) for name, item in attributes.copy().items())
    for base in mro_of(cls):
        slots = () if is_written_in_c(base) else entries_of(base).copy().items()
        for name, slot in slots:
            if isinstance(slot, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # an empty one
                    yield f".{name}", slot.__get__(value)


def is_held_by(constant: Any, array: Any) -> bool:
    """Whether a constant of a program is this array."""
    if constant is array:
        return True
    # jax keeps NumPy arrays in a wrapper of its own, or as a copy.
    if isinstance(constant, jax.Array) or not isinstance(array, np.ndarray) or constant.shape != array.shape:
        return False
    values = np.asarray(constant)
    if values.ctypes.data == array.ctypes.data:
        return True
    is_alike = values.dtype.kind == array.dtype.kind and values.size <= _MAX_COMPARED
    return is_alike and np.array_equal(values, array.astype(values.dtype))


def arrays_in_statics(data: SpecData, name: str, function: Any) -> list[list[ArrayPlace]]:
    """The arrays whose change a call would not see, of each static value. `function` is what is called if that is not a
    value of the call: the instance of a method and the arguments of a partial, which is called `name`, count too.
    """
    places = [_below(data, index, list(arrays_in("", value))) for index, value in _objects(data)]
    for _ in range(_MAX_WRAPPERS):
        inner = attribute_of(function, "__wrapped__")
        if inner is None:
            break
        function = inner
    if isinstance(function, functools.partial):
        places.append(list(arrays_in(name, function)))
    elif function is not None:
        instance = function.__self__ if isinstance(function, types.MethodType) else function
        places.append(list(arrays_in("self", instance)))
    unseen = ([place for place in of_value if place.holder is not None] for of_value in places)
    return [of_value for of_value in unseen if of_value]


def _objects(data: SpecData) -> Iterator[tuple[int, Any]]:
    """The static values that may hold others, each once, with its index."""
    ids: set[int] = set()
    for index, slot in enumerate(data[1]):
        if slot and type(slot[0]) not in _PLAIN and id(slot[0]) not in ids:
            ids.add(id(slot[0]))
            yield index, slot[0]


def _below(data: SpecData, index: int, places: list[ArrayPlace]) -> list[ArrayPlace]:
    path = static_path(data, index) if places else ""
    return [place._replace(path=path + place.path) for place in places]


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
            if constants is None or id(array) in ids or any(is_held_by(value, array) for value in constants):
                _warn_once(path, holder, record.history)
                break


def _warn_once(path: str, holder: Any, history: Any) -> None:
    cls = type(holder)
    key = (history.name, history.defined, cls.__module__, cls.__qualname__, path)
    if key in _warned:
        return
    remedy = f"Pass the `{cls.__qualname__}` as an argument"
    if not is_installed(cls.__module__) and not _is_of_flax(cls) and _core.node_kind(holder) == "static_leaf":
        remedy = (
            f"Make `{cls.__qualname__}` a pytree, as an Equinox module or with jax.tree_util.register_dataclass, or "
            "pass the array as an argument"
        )
    warnings.warn_explicit(
        f"`{path}` is an array in a static `{cls.__qualname__}`: it is a constant of the program, and another array "
        f"there later is not seen. {remedy}",
        UserWarning,
        *call_site(),
    )
    _warned.add(key)


def refuse_static_trees(data: SpecData) -> None:
    """Raises a TypeError for a static object of Flax with arrays: the program would not see its changes."""
    for index, value in _objects(data):
        if _is_of_flax(type(value)) and next(arrays_in("", value), None) is not None:
            raise TypeError(
                f"`{static_path(data, index)}`: found a `{type(value).__qualname__}` of Flax with arrays as a static "
                "value, expected a pytree, whose arrays are traced; leave out `pytree=False`, make a static field "
                "dynamic, or use `partax.nnx.jit`"
            )


def _is_of_flax(cls: Any) -> bool:
    kind = attribute_of(sys.modules.get("flax.nnx"), "Pytree")
    return isinstance(kind, type) and issubclass(cls, kind)
