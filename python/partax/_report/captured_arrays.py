"""The arrays that a program has captured, by the names of the variables that held them; a warning of some of them."""

import contextlib
import dataclasses
import functools
import inspect
import math
import types
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from partax import _core
from partax._functions.installed import is_installed
from partax._functions.objects import read
from partax._pytree.call_site import call_site
from partax._pytree.short_text import array_text
from partax._pytree.spec_data import FIELD, VALUE, Detail, shown

_MAX_DEPTH = 4
_MAX_OBJECTS = 1000  # that are looked into for one variable
_MAX_COMPARED = 1 << 22
_NOT_LOOKED_INTO = (type, types.ModuleType, types.FunctionType, jax.Array, np.ndarray)


@dataclasses.dataclass(frozen=True)
class Constant:
    """One array that a program contains, and passes to each call.

    Attributes:
      name: the variable that held it, or an empty string where none was found.
      type: dtype and shape, such as `float32[1000,10]`.
      bytes: its size.
    """

    name: str
    type: str
    bytes: int


class Holder(NamedTuple):
    kind: str  # `closure cell`, `default`, `global`, `bound argument`, `static argument` or `attribute`
    root: str  # its name
    name: str  # the path from there to the array, such as `model.layers[0].weight`


def captured_constants(constants: list[Any], fun: Any) -> list[Constant]:
    """The constants of a program by name, the largest first; `fun` was traced, or is None if it is gone."""
    found: list[Constant] = []
    for constant, holder in zip(constants, holders(constants, fun), strict=True):
        size = int(getattr(constant, "nbytes", 0)) or math.prod(constant.shape) * constant.dtype.itemsize
        found.append(Constant("" if holder is None else holder.name, array_text(constant), size))
    return sorted(found, key=lambda constant: -constant.bytes)


def holders(constants: list[Any], fun: Any, statics: Mapping[str, Any] = MappingProxyType({})) -> list[Holder | None]:
    """The variable that holds each constant of a program, if one is found; `statics` are its arguments by path."""
    variables = list(_variables(fun, set(), 0)) if constants and fun is not None else []
    for path, value in statics.items() if constants else ():
        variables += _arrays("static argument", path, value)
    known = {id(array): holder for holder, array in reversed(variables)}
    return [
        known.get(id(constant)) or next((holder for holder, array in variables if _is_held_by(constant, array)), None)
        for constant in constants
    ]


def _is_held_by(constant: Any, array: Any) -> bool:
    # jax keeps NumPy arrays in a wrapper of its own, or as a copy.
    if isinstance(constant, jax.Array) or not isinstance(array, np.ndarray) or constant.shape != array.shape:
        return False
    values = np.asarray(constant)
    if values.ctypes.data == array.ctypes.data:
        return True
    return values.size <= _MAX_COMPARED and values.dtype == array.dtype and np.array_equal(values, array)


def _variables(fun: Any, seen: set[int], depth: int) -> Generator[tuple[Holder, Any]]:
    """The arrays in the closures and globals of a function and of the functions that it names."""
    fun = inspect.unwrap(fun)
    while isinstance(fun, functools.partial):
        named = [*((f"argument {i}", it) for i, it in enumerate(fun.args)), *fun.keywords.items()]
        yield from (found for name, value in named for found in _arrays("bound argument", name, value))
        fun = inspect.unwrap(fun.func)
    if isinstance(fun, types.MethodType):
        yield from _arrays("attribute", "self", fun.__self__)
        fun = fun.__func__
    if not isinstance(fun, types.FunctionType) or id(fun) in seen or depth > _MAX_DEPTH:
        return
    seen.add(id(fun))
    codes, found = [fun.__code__], list[tuple[str, str, Any]]()
    for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            found.append(("closure cell", name, cell.cell_contents))
    defaults = fun.__defaults__ or ()
    named = fun.__code__.co_varnames[fun.__code__.co_argcount - len(defaults) : fun.__code__.co_argcount]
    pairs = [*zip(named, defaults, strict=True), *(fun.__kwdefaults__ or {}).items()]
    found += [("default", name, value) for name, value in pairs]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        found += [("global", name, fun.__globals__[name]) for name in code.co_names if name in fun.__globals__]
    for kind, name, value in found:
        if callable(value) and not isinstance(value, type):
            yield from _variables(value, seen, depth + 1)
        if isinstance(value, types.ModuleType):
            for attribute in fun.__code__.co_names:
                yield from _arrays(kind, f"{name}.{attribute}", vars(value).get(attribute))
        else:
            yield from _arrays(kind, name, value)


def _arrays(kind: str, name: str, value: Any) -> Generator[tuple[Holder, Any]]:
    """The arrays of a variable: the leaves of a tree, and what else is inside of objects."""
    found = dict[str, Any]()
    with contextlib.suppress(Exception):  # it is no argument: it need not be a tree that partax can take
        leaves, spec = _core.flatten(value, name)
        found = dict(zip(spec.dynamic_paths(), leaves, strict=True))
    for path, array in (*found.items(), *arrays_in(name, value)):
        yield Holder(kind, name, path), array


def arrays_in(path: str, value: Any, deepest: int = _MAX_OBJECTS, libraries: bool = True) -> Iterator[tuple[str, Any]]:
    """The arrays in the attributes of objects, static ones too, and in the containers there; the nearest first. So many
    levels are looked into, and objects of installed libraries inside of the value only where that is asked for.
    """
    left = [(path, value, 0)]
    seen: set[int] = set()
    for path, it, level in left:
        cls: Any = type(it)
        if issubclass(cls, (jax.Array, np.ndarray)):
            yield path, it
        if id(it) in seen or len(left) > _MAX_OBJECTS or level == deepest or issubclass(cls, _NOT_LOOKED_INTO):
            continue
        seen.add(id(it))
        items: list[tuple[str, Any]] = []
        if issubclass(cls, dict):
            items += [(f"[{shown(key)}]", item) for key, item in list(dict.items(it))[:_MAX_OBJECTS]]
        elif issubclass(cls, (list, tuple)):
            own = list if issubclass(cls, list) else tuple
            items += [(f"[{i}]", item) for i, item in enumerate(own.__getitem__(it, slice(_MAX_OBJECTS)))]
        attributes = read(it, "__dict__")
        if type(attributes) is dict and (libraries or level == 0 or not is_installed(cls.__module__)):
            items += [(f".{name}", item) for name, item in attributes.copy().items()]
        left += [(path + segment, item, level + 1) for segment, item in items]


_DEEPEST = 3

_warned: set[tuple[str, str, str]] = set()


def warn_of_arrays(described: Iterable[Detail]) -> None:
    """Warns once of each place in a call where an object of a user's class, known by identity, holds an array."""
    for path, kind, value in described:
        cls = type(value)
        if kind not in (VALUE, FIELD) or cls.__eq__ is not object.__eq__ or is_installed(cls.__module__):
            continue
        place = next((place for place, _ in arrays_in(path, value, _DEEPEST, libraries=False)), None)
        key = (cls.__module__, cls.__qualname__, place or "")
        if place is None or key in _warned:
            continue
        _warned.add(key)
        warnings.warn_explicit(
            f"`{place}` is an array in a static `{cls.__qualname__}`: it is a constant of the program, and another "
            f"array there later is not seen. Make `{cls.__qualname__}` a pytree, as an Equinox module or with "
            "jax.tree_util.register_dataclass, or pass the array as an argument",
            UserWarning,
            *call_site(),
        )
