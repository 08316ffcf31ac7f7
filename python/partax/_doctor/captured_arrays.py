"""The arrays that a program has captured, by the names of the variables that held them."""

import contextlib
import functools
import inspect
import types
from collections.abc import Generator
from typing import Any, NamedTuple

from partax import _core
from partax._jit.static_arrays import arrays_in, is_held_by

_MAX_DEPTH = 4


class Holder(NamedTuple):
    kind: str  # `closure cell`, `default`, `global`, `bound argument` or `attribute`
    root: str  # its name
    name: str  # the path from there to the array, such as `model.layers[0].weight`


def holders(constants: list[Any], fun: Any) -> list[Holder | None]:
    variables = list(_variables(fun, set(), 0)) if constants and fun is not None else []
    holder_by_id = {id(array): holder for holder, array in reversed(variables)}
    return [
        holder_by_id.get(id(constant))
        or next((holder for holder, array in variables if is_held_by(constant, array)), None)
        for constant in constants
    ]


def _variables(fun: Any, seen: set[int], depth: int) -> Generator[tuple[Holder, Any]]:
    """The arrays in the closures and globals of a function and of the functions that it names."""
    fun = inspect.unwrap(fun)
    while isinstance(fun, functools.partial):
        named = [*((f"argument {i}", argument) for i, argument in enumerate(fun.args)), *fun.keywords.items()]
        yield from (pair for name, value in named for pair in _arrays("bound argument", name, value))
        fun = inspect.unwrap(fun.func)
    if isinstance(fun, types.MethodType):
        yield from _arrays("attribute", "self", fun.__self__)
        fun = fun.__func__
    if not isinstance(fun, types.FunctionType) or id(fun) in seen or depth > _MAX_DEPTH:
        return
    seen.add(id(fun))
    codes, variables = [fun.__code__], list[tuple[str, str, Any]]()
    for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            variables.append(("closure cell", name, cell.cell_contents))
    defaults = fun.__defaults__ or ()
    named = fun.__code__.co_varnames[fun.__code__.co_argcount - len(defaults) : fun.__code__.co_argcount]
    pairs = [*zip(named, defaults, strict=True), *(fun.__kwdefaults__ or {}).items()]
    variables += [("default", name, value) for name, value in pairs]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        variables += [("global", name, fun.__globals__[name]) for name in code.co_names if name in fun.__globals__]
    for kind, name, value in variables:
        if callable(value) and not isinstance(value, type):
            yield from _variables(value, seen, depth + 1)
        if isinstance(value, types.ModuleType):
            for attribute in fun.__code__.co_names:
                yield from _arrays(kind, f"{name}.{attribute}", vars(value).get(attribute))
        else:
            yield from _arrays(kind, name, value)


def _arrays(kind: str, name: str, value: Any) -> Generator[tuple[Holder, Any]]:
    """The arrays of a variable: the leaves of a tree, and what else is inside objects."""
    leaf_by_path = dict[str, Any]()
    with contextlib.suppress(Exception):  # it is not an argument, so it need not be a tree that partax can take
        leaves, spec = _core.flatten(value, name)
        leaf_by_path = dict(zip(spec.dynamic_paths(), leaves, strict=True))
    inside = ((inner.path, inner.array) for inner in arrays_in(name, value))
    for path, array in (*leaf_by_path.items(), *inside):
        yield Holder(kind, name, path), array
