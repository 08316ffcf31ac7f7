"""The arrays that a program has captured, by the names of the variables that held them."""

import functools
import inspect
import types
from collections.abc import Generator
from typing import Any, NamedTuple

import jax
import numpy as np

from partax import _core

_MAX_DEPTH = 4
_MAX_COMPARED = 1 << 22


class Constant(NamedTuple):
    """One array that a program contains, and passes to each call.

    Attributes:
      name: the variable that held it, or an empty string where none was found.
      type: dtype and shape, such as `float32[1000,10]`.
      bytes: its size.
    """

    name: str
    type: str
    bytes: int


def captured_constants(constants: list[Any], fun: Any) -> list[Constant]:
    """Names the constants of a program.

    Args:
      constants: of the jaxpr.
      fun: the function that was traced, or None if it is gone.

    Returns:
      One `Constant` each, the largest first.
    """
    found: list[Constant] = []
    variables = list(_variables(fun, set(), 0)) if constants and fun is not None else []
    for constant in constants:
        shape, dtype = getattr(constant, "shape", ()), getattr(constant, "dtype", None)
        size = int(getattr(constant, "nbytes", 0)) or int(np.prod(shape)) * getattr(dtype, "itemsize", 0)
        name = next((name for name, array in variables if _is_held_by(constant, array)), "")
        found.append(Constant(name, f"{dtype}[{','.join(map(str, shape))}]", size))
    return sorted(found, key=lambda constant: -constant.bytes)


def _is_held_by(constant: Any, array: Any) -> bool:
    if constant is array:
        return True
    # jax keeps NumPy arrays in a wrapper of its own, or as a copy.
    if isinstance(constant, jax.Array) or not isinstance(array, np.ndarray) or constant.shape != array.shape:
        return False
    values = np.asarray(constant)
    if values.ctypes.data == array.ctypes.data:
        return True
    return values.size <= _MAX_COMPARED and values.dtype == array.dtype and np.array_equal(values, array)


def _variables(fun: Any, seen: set[int], depth: int) -> Generator[tuple[str, Any]]:
    """The arrays in the closures and globals of a function and of the functions that it names."""
    fun = inspect.unwrap(fun)
    while isinstance(fun, functools.partial):
        for i, value in enumerate((*fun.args, *fun.keywords.values())):
            yield from _arrays(f"argument {i}", value)
        fun = inspect.unwrap(fun.func)
    if isinstance(fun, types.MethodType):
        yield from _arrays("self", fun.__self__)
        fun = fun.__func__
    if not isinstance(fun, types.FunctionType) or id(fun) in seen or depth > _MAX_DEPTH:
        return
    seen.add(id(fun))
    for name, value in _named_values(fun):
        if callable(value) and not isinstance(value, type):
            yield from _variables(value, seen, depth + 1)
        if isinstance(value, types.ModuleType):
            for attribute in fun.__code__.co_names:
                yield from _arrays(f"{name}.{attribute}", getattr(value, attribute, None))
        else:
            yield from _arrays(name, value)


def _named_values(fun: types.FunctionType) -> Generator[tuple[str, Any]]:
    for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # an empty cell
            continue
    codes = [fun.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        yield from ((name, fun.__globals__[name]) for name in code.co_names if name in fun.__globals__)


def _arrays(name: str, value: Any) -> Generator[tuple[str, Any]]:
    if isinstance(value, (jax.Array, np.ndarray)):
        yield name, value
        return
    try:
        leaves, spec = _core.flatten(value, name)
    except Exception:  # it is no argument: it need not be a tree that partax can take
        return
    yield from zip(spec.dynamic_paths(), leaves, strict=True)
