"""Which parts of a step's result are what the next step takes: found by their structure, where that leaves no doubt."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from partax import _core
from partax._pytree.array_text import array_text
from partax._transforms.carry import ArrayType, array_type, joined
from partax._transforms.tree_differences import Difference, Flat, first_difference

Place = int | str | tuple[int | str, ...]
"""Where a part is in a result: a position, a key or a field, or several of these one below the other."""


Places = Mapping[tuple[Any, ...], str]
"""Of a result: the arguments that its parts become, by the path to each."""


class Shape(NamedTuple):
    """A tree without the values of its arrays, whose types stand by their paths."""

    flat: Flat
    avals: dict[str, ArrayType]
    is_array: bool


def candidates(values: Mapping[str, Any], carry: Any) -> tuple[str, ...]:
    """The names of the arguments that may be carried: those that are named in `carry`, if it is no None."""
    if carry is None:  # numbers alone, as a learning rate, are no state: any scalar may stand in the place of one
        return tuple(name for name, value in values.items() if shape_of(value, name).avals)
    for name in carry:
        if name not in values:
            known = ", ".join(f"`{it}`" for it in values) or "none, as objects of Flax are changed in place"
            raise ValueError(f"found {name!r} in carry, expected names of arguments of this call: {known}")
    return tuple(carry)


def find(values: Mapping[str, Any], result: Any, carry: Any) -> Places:
    """What is carried, and where it is: pairs parts of a result, with a `jax.ShapeDtypeStruct` for each array, with the
    arguments that may be carried. The user has said so in `carry`, by names, or places by name, or nothing (None).
    """
    arguments = {name: shape_of(value, name) for name, value in values.items()}
    if isinstance(carry, Mapping):
        found: dict[tuple[Any, ...], str] = {}
        for name, place in carry.items():
            path = tuple(place) if isinstance(place, (tuple, list)) else (place,)
            _check(arguments[name], shape_of(_at(result, path), name), name, path)
            if path in found:
                raise ValueError(f"found `{place_text(path)}` for `{found[path]}` and `{name}` in carry, expected one")
            found[path] = name
    else:
        is_named = carry is not None
        found = _paired(list(_candidates(result, (), arguments, is_named)), arguments, is_named)
    if not found:
        _check_nearest(result, arguments)
        raise ValueError(
            "found nothing in the result of a step that has the structure of one of its arguments, expected what the "
            "next step takes; return it as it came in, or say where it is: carry={'state': 0}"
        )
    return found


def taken_apart(places: Places, result: Any) -> tuple[dict[str, Any], Any]:
    """What of a result is carried, by name, and the result with None in the places of that."""
    carried = {name: _at(result, path) for path, name in places.items()}
    return carried, _with_parts(result, dict.fromkeys(places))


def put_together(places: Places, carried: Mapping[str, Any], rest: Any) -> Any:
    return _with_parts(rest, {path: carried[name] for path, name in places.items()})


def _with_parts(value: Any, parts: Mapping[tuple[Any, ...], Any]) -> Any:
    """The same with other parts, by the path to each."""
    if not parts or () in parts:
        return parts.get((), value)
    children = parts_of(value) or {}
    for key in dict.fromkeys(path[0] for path in parts):
        children[key] = _with_parts(children[key], {path[1:]: it for path, it in parts.items() if path[0] == key})
    if type(value) is dict:
        return children
    return type(value)(*children.values()) if hasattr(value, "_fields") else type(value)(children.values())


def parts_of(value: Any) -> dict[Any, Any] | None:
    """Those of a plain container, by key."""
    if type(value) in (tuple, list):
        return dict(enumerate(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    return dict(value) if type(value) is dict else None


def shape_of(tree: Any, root: str) -> Shape:
    structs: dict[int, Any] = {}

    def stand_in(leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        array = np.zeros(())
        structs[id(array)] = leaf
        return array

    leaves, spec = _core.flatten(jax.tree.map(stand_in, tree), root)
    types = [array_type(structs.get(id(leaf), leaf)) for leaf in leaves]
    by_path = dict(zip((it.removeprefix(root) for it in spec.dynamic_paths()), types, strict=True))
    return Shape(Flat(spec, types), by_path, isinstance(tree, jax.ShapeDtypeStruct) or _core.is_array_like(tree))


def _structure_difference(argument: Shape, part: Shape, name: str) -> Difference | None:
    """Where a part of a result cannot be the argument of the next step: a Python number may be a scalar there."""
    if argument.flat.spec == part.flat.spec:
        return None
    difference = first_difference(argument.flat, part.flat, name, numbers_settle=True)
    for path, after in part.avals.items() if difference is None else ():
        if path not in argument.avals and after.shape != ():
            return Difference(name + path, "a number", array_text(after))
    return difference


def _type_difference(argument: Shape, part: Shape, name: str) -> Difference | None:
    for path, before in argument.avals.items():
        after = part.avals.get(path, before)
        settles = before.weak and joined(before, after) is not None
        if not settles and (before.shape, before.dtype) != (after.shape, after.dtype):
            return Difference(name + path, array_text(before), array_text(after))
    return None


def _check(argument: Shape, part: Shape, name: str, path: tuple[Any, ...]) -> None:
    difference = _structure_difference(argument, part, name) or _type_difference(argument, part, name)
    if difference is not None:
        raise TypeError(
            f"`{difference.path}`: {difference.first} before a step, {difference.second} after it, in "
            f"`{place_text(path)}`; what is carried has to keep its structure, dtypes and shapes"
        )


def _check_nearest(result: Any, arguments: Mapping[str, Shape]) -> None:
    """Names what is otherwise in a part of a result that has its arrays where an argument has them."""
    for path, part in [((), result), *(((key,), it) for key, it in (parts_of(result) or {}).items())]:
        shape = shape_of(part, "result")
        for name, argument in arguments.items():
            if argument.avals and argument.avals.keys() == shape.avals.keys():
                _check(argument, shape, name, path)


def _candidates(
    value: Any, path: tuple[Any, ...], arguments: Mapping[str, Shape], named: bool
) -> Iterator[tuple[tuple[Any, ...], list[str]]]:
    """The largest parts of a result that may be an argument, with the names of those."""
    shape = shape_of(value, "result")
    alike = {
        name: argument
        for name, argument in arguments.items()
        # Numbers that settle are no sign without an array beside them, unless the user has said so.
        if not argument.avals.keys().isdisjoint(shape.avals) or (named and not argument.avals)
        if _structure_difference(argument, shape, name) is None
    }
    names = [name for name, argument in alike.items() if _type_difference(argument, shape, name) is None]
    if names:
        yield path, names
        return
    for name, argument in () if shape.is_array else alike.items():
        _check(argument, shape, name, path)
    for key, child in (parts_of(value) or {}).items():
        yield from _candidates(child, (*path, key), arguments, named)


def _paired(
    parts: list[tuple[tuple[Any, ...], list[str]]], arguments: Mapping[str, Shape], named: bool
) -> dict[tuple[Any, ...], str]:
    found: dict[tuple[Any, ...], str] = {}
    for path, names in parts:
        alike = [other for other, its in parts if its == names]
        texts = " and ".join(f"`{place_text(it)}`" for it in alike)
        if len(alike) != len(names):
            wanted = " or ".join(f"`{name}`" for name in names)
            raise ValueError(
                f"found {texts} of the structure of {wanted}, expected as many as these; say which is carried by "
                f"carry={{{names[0]!r}: {(path[0] if len(path) == 1 else path)!r}}}"
            )
        first = arguments[names[0]]
        is_key = all(jnp.issubdtype(it.dtype, jax.dtypes.prng_key) for it in first.avals.values())
        if not named and first.is_array and not is_key:
            every = tuple(dict.fromkeys(name for _, its in parts for name in its))
            raise ValueError(
                f"found {texts} of the type of `{names[0]}`, which is an array alone, and may be another one; say "
                f"whether it is carried by the names of all that is, as carry={every!r}"
            )
        found[path] = names[alike.index(path)]
    for name in arguments if named else ():
        if name not in found.values():
            raise ValueError(f"found nothing in the result of a step of the structure of `{name}`, which is in carry")
    return found


def _at(result: Any, path: tuple[Any, ...]) -> Any:
    for i, key in enumerate(path):
        children = parts_of(result) or {}
        if key not in children:
            raise ValueError(f"found no `{place_text(path[: i + 1])}` in the result of a step, which is to be carried")
        result = children[key]
    return result


def place_text(path: tuple[Any, ...], root: str = "result") -> str:
    return root + "".join(f"[{key!r}]" for key in path)
