"""The arrays that a program has captured, by the names of the variables that held them."""

import contextlib
import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from partax import _core
from partax._jit.static_arrays import arrays_in, is_held_by
from partax._pytree.spec_data import leaf_paths

_MOST_FUNCTIONS = 1000  # that are looked into


class Holder(NamedTuple):
    kind: str  # `closure cell`, `default`, `global`, `bound argument` or `attribute`
    root: str  # its name
    name: str  # the path from there to the array, such as `model.layers[0].weight`


def holders(constants: list[Any], function: Any) -> list[Holder | None]:
    variables = list(_arrays_of(function)) if constants and function is not None else []
    holder_by_id = {id(array): holder for holder, array in reversed(variables)}
    return [
        holder_by_id.get(id(constant))
        or next((holder for holder, array in variables if is_held_by(constant, array)), None)
        for constant in constants
    ]


def _arrays_of(function: Any) -> Iterator[tuple[Holder, Any]]:
    functions, seen = [inspect.unwrap(function)], set[int]()
    for fun in functions:
        if id(fun) in seen or len(seen) > _MOST_FUNCTIONS:
            continue
        seen.add(id(fun))
        for kind, name, value in _variables(fun):
            if callable(value) and not isinstance(value, type):
                functions.append(inspect.unwrap(value))
            with contextlib.suppress(Exception):  # it is not an argument, so it need not be a tree of partax
                described, leaves = _core.describe_tree(value, name)
                for path, array in zip(leaf_paths(described), leaves, strict=True):
                    yield Holder(kind, name, path), array
            yield from ((Holder(kind, name, place.path), place.array) for place in arrays_in(name, value))


def _variables(fun: Any) -> Iterator[tuple[str, str, Any]]:
    if isinstance(fun, functools.partial):
        named = *((f"argument {i}", value) for i, value in enumerate(fun.args)), *fun.keywords.items()
        yield from (("bound argument", name, value) for name, value in (*named, (fun.func.__name__, fun.func)))
    elif isinstance(fun, types.MethodType):
        yield from (("attribute", "self", fun.__self__), ("attribute", fun.__name__, fun.__func__))
    elif isinstance(fun, types.FunctionType):
        for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                yield "closure cell", name, cell.cell_contents
        parameters = inspect.signature(fun).parameters.values()
        yield from (("default", one.name, one.default) for one in parameters if one.default is not one.empty)
        codes = [fun.__code__]
        for code in codes:
            codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
            for name in code.co_names:
                value = fun.__globals__.get(name)
                yield "global", name, value
                if isinstance(value, types.ModuleType):
                    yield from (("global", f"{name}.{part}", vars(value).get(part)) for part in code.co_names)
