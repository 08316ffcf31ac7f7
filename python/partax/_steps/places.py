"""Which parts of a step's result are what the next step takes: found by their structure, where that leaves no doubt."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from partax import _core
from partax._pytree.array_text import array_text
from partax._transforms.tree_differences import Difference, Flat, first_difference

Place = int | str | tuple[int | str, ...]
"""Where a part is in a result: a position, a key or a field, or several of these one below the other."""


class Carried(NamedTuple):
    """Of a skeleton: the part of a result that is carried, by the argument that it becomes."""

    name: str


class Rest(NamedTuple):
    """Of a skeleton: a part that is handed out, by its number."""

    number: int


class Node(NamedTuple):
    """Of a skeleton: a tuple, a list or a dictionary that has carried parts."""

    cls: type
    keys: tuple[Any, ...]
    children: tuple[Any, ...]


Skeleton = Carried | Rest | Node


class Shape(NamedTuple):
    """A tree without the values of its arrays, whose types stand by their paths."""

    flat: Flat
    avals: dict[str, Any]
    is_array: bool


def find(values: Mapping[str, Any], result: Any, carry: Any) -> Skeleton:
    """Pairs parts of a result with arguments.

    Args:
      values: the arguments that may be carried, by name.
      result: of a step, with a `jax.ShapeDtypeStruct` for each array.
      carry: what the user has said: names, or places by name; None for nothing.

    Returns:
      How a result is taken apart.

    Raises:
      TypeError: what is to be carried comes back with another static part, dtype or shape; the message has the path.
      ValueError: nothing comes back as it went in, or it could be one or the other.
    """
    asked = None if carry is None else dict.fromkeys(carry) if not isinstance(carry, Mapping) else dict(carry)
    for name in asked or ():
        if name not in values:
            known = ", ".join(f"`{it}`" for it in values)
            raise ValueError(f"found {name!r} in carry, expected names of arguments of this call: {known}")
    arguments = {name: shape_of(values[name], name) for name in (values if asked is None else asked)}
    if asked is None:  # numbers alone, as a learning rate, are no state: any scalar may stand in the place of one
        arguments = {name: argument for name, argument in arguments.items() if argument.avals}
    parts: list[tuple[tuple[Any, ...], Any]] = []
    if isinstance(carry, Mapping):
        found = {_path(place): name for name, place in carry.items()}
        for path, name in found.items():
            _check(arguments[name], shape_of(_at(result, path), name), name, path)
    else:
        _collect(result, (), arguments, asked is not None, parts)
        found = _paired(parts, arguments, asked is not None)
    if not found:
        raise ValueError(
            "found nothing in the result of a step that has the structure of one of its arguments, expected what the "
            "next step takes; return it as it came in, or say where it is: carry={'state': 0}"
        )
    return _skeleton(result, (), found, [0])


def taken_apart(skeleton: Skeleton, result: Any) -> tuple[dict[str, Any], list[Any]]:
    """What of a result is carried, by name, and the rest.

    Raises:
      TypeError: the result has another structure than the one that the skeleton is of.
    """
    carried: dict[str, Any] = {}
    rest: list[Any] = []
    waiting = [(skeleton, result)]
    while waiting:
        part, value = waiting.pop(0)
        if isinstance(part, Carried):
            carried[part.name] = value
        elif isinstance(part, Rest):
            rest.append((part.number, value))
        else:
            children = parts_of(value)
            if type(value) is not part.cls or children is None or set(children) != set(part.keys):
                raise TypeError("found a result of another structure than that of the step before")
            waiting += [(child, children[key]) for key, child in zip(part.keys, part.children, strict=True)]
    return carried, [value for _, value in sorted(rest, key=lambda it: it[0])]


def put_together(skeleton: Skeleton, carried: Mapping[str, Any], rest: Sequence[Any]) -> Any:
    """The result with these parts."""
    if isinstance(skeleton, Carried):
        return carried[skeleton.name]
    if isinstance(skeleton, Rest):
        return rest[skeleton.number]
    children = [put_together(child, carried, rest) for child in skeleton.children]
    if issubclass(skeleton.cls, dict):
        return dict(zip(skeleton.keys, children, strict=True))
    return skeleton.cls(*children) if hasattr(skeleton.cls, "_fields") else skeleton.cls(children)


def names_in(skeleton: Skeleton) -> list[str]:
    """The arguments that are carried."""
    if isinstance(skeleton, Node):
        return [name for child in skeleton.children for name in names_in(child)]
    return [skeleton.name] if isinstance(skeleton, Carried) else []


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
    arrays = [structs.get(id(leaf), leaf) for leaf in leaves]
    types = [it if isinstance(it, jax.ShapeDtypeStruct) else jax.typeof(it) for it in arrays]
    by_path = dict(zip((it.removeprefix(root) for it in spec.dynamic_paths()), types, strict=True))
    return Shape(Flat(spec, types), by_path, isinstance(tree, jax.ShapeDtypeStruct) or _core.is_array_like(tree))


def _is_key(shape: Shape) -> bool:
    return shape.is_array and all(jnp.issubdtype(it.dtype, jax.dtypes.prng_key) for it in shape.avals.values())


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
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            return Difference(name + path, array_text(before), array_text(after))
    return None


def _check(argument: Shape, part: Shape, name: str, path: tuple[Any, ...]) -> None:
    difference = _structure_difference(argument, part, name) or _type_difference(argument, part, name)
    if difference is not None:
        raise TypeError(
            f"`{difference.path}`: {difference.first} before a step, {difference.second} after it, in "
            f"`{_text(path)}`; what is carried has to keep its structure, dtypes and shapes"
        )


def _collect(value: Any, path: tuple[Any, ...], arguments: Mapping[str, Shape], named: bool, parts: list[Any]) -> None:
    """Adds the largest parts of a result that may be an argument, with the names of those."""
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
        parts.append((path, names))
        return
    for name, argument in alike.items():
        if not shape.is_array:
            _check(argument, shape, name, path)
    children = parts_of(value)
    for key, child in (children or {}).items():
        _collect(child, (*path, key), arguments, named, parts)


def _paired(
    parts: list[tuple[tuple[Any, ...], list[str]]], arguments: Mapping[str, Shape], named: bool
) -> dict[tuple[Any, ...], str]:
    found: dict[tuple[Any, ...], str] = {}
    for path, names in parts:
        alike = [other for other, its in parts if its == names]
        texts = " and ".join(f"`{_text(it)}`" for it in alike)
        if len(alike) != len(names):
            wanted = " or ".join(f"`{name}`" for name in names)
            raise ValueError(
                f"found {texts} of the structure of {wanted}, expected as many as these; say which is carried by "
                f"carry={{{names[0]!r}: {_shown(path)}}}"
            )
        if not named and arguments[names[0]].is_array and not _is_key(arguments[names[0]]):
            every = tuple(dict.fromkeys(name for _, its in parts for name in its))
            raise ValueError(
                f"found {texts} of the type of `{names[0]}`, which is an array alone, and may be another one; say "
                f"whether it is carried by the names of all that is, as carry={every!r}"
            )
        found[path] = names[alike.index(path)]
    for name in arguments if named else ():
        if name not in found.values():
            raise ValueError(
                f"found nothing in the result of a step that has the structure of `{name}`, which is in carry"
            )
    return found


def _skeleton(value: Any, path: tuple[Any, ...], found: Mapping[tuple[Any, ...], str], count: list[int]) -> Skeleton:
    if path in found:
        return Carried(found[path])
    children = parts_of(value)
    if children is None or not any(it[: len(path)] == path for it in found):
        count[0] += 1
        return Rest(count[0] - 1)
    return Node(
        type(value), tuple(children), tuple(_skeleton(it, (*path, key), found, count) for key, it in children.items())
    )


def _path(place: Place) -> tuple[Any, ...]:
    return place if isinstance(place, tuple) else (place,)


def _at(result: Any, path: tuple[Any, ...]) -> Any:
    value = result
    for i, key in enumerate(path):
        children = parts_of(value)
        if children is None or key not in children:
            raise ValueError(f"found no `{_text(path[: i + 1])}` in the result of a step, which carry asks for")
        value = children[key]
    return value


def _text(path: tuple[Any, ...]) -> str:
    return "result" + "".join(f"[{key!r}]" for key in path)


def _shown(path: tuple[Any, ...]) -> str:
    return repr(path[0] if len(path) == 1 else path)
