"""Which parts of a step's result are what the next step takes: found by their structure, where that leaves no doubt."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from partax import _core
from partax._pytree.short_text import array_text
from partax._transforms.carry import (
    ArrayType,
    Difference,
    Flat,
    array_type,
    first_difference,
    joined,
    numbers_that_differ,
)

Place = int | str | tuple[int | str, ...]
"""Where a part is in a result: a position, a key or a field, or several of these one below the other."""


Places = Mapping[tuple[Any, ...], str]
"""Of a result: the arguments that its parts become, by the path to each."""


class Shape(NamedTuple):
    """A tree without the values of its arrays, whose types stand by their paths."""

    flat: Flat
    avals: dict[str, ArrayType]
    is_array: bool
    is_common: bool  # an array alone that is no key, or scalars in plain containers, as metrics are


def _candidates(values: Mapping[str, Any], carry: Any) -> tuple[str, ...]:
    """The names of the arguments that may be carried: those that are named in `carry`, if it is no None."""
    if carry is None:  # numbers alone, as a learning rate, are no state: any scalar may stand in the place of one
        return tuple(name for name, value in values.items() if shape_of(value, name).avals)
    for name in carry:
        if name not in values:
            known = ", ".join(f"`{it}`" for it in values) or "none, as objects of Flax are changed in place"
            raise ValueError(f"found {name!r} in carry, expected names of arguments of this call: {known}")
    return tuple(carry)


def find(values: Mapping[str, Any], result: Any, carry: Any, is_needed: bool) -> Places:
    """What is carried, and where it is: pairs parts of a result, with a `jax.ShapeDtypeStruct` for each array, with
    arguments. The user has said which in `carry`, by names, or places by name, or nothing (None).
    """
    arguments = {name: shape_of(values[name], name) for name in _candidates(values, carry)}
    if isinstance(carry, Mapping):
        found: dict[tuple[Any, ...], str] = {}
        for name, place in carry.items():
            path = tuple(place) if isinstance(place, (tuple, list)) else (place,)
            _check(arguments[name], shape_of(_at(result, path), name), name, path)
            if path in found:
                raise ValueError(f"found `{place_text(path)}` for `{found[path]}` and `{name}` in carry, expected one")
            found[path] = name
        return found
    found = _paired(result, arguments, named=carry is not None)
    missing = [name for name in arguments if name not in found.values()]
    if missing and (carry is not None or (is_needed and not found)):
        _check_nearest(result, {name: arguments[name] for name in missing})
        if carry is not None:
            raise ValueError(
                f"found nothing in the result of a step of the structure of `{missing[0]}`, which is in carry; say "
                f"where it is, as carry={{{missing[0]!r}: 0}}, or leave it out"
            )
    if is_needed and not found:
        raise ValueError(
            "found nothing in the result of a step that has the structure of one of its arguments, expected what the "
            "next step takes; return it as it came in, by itself or in a tuple, list, dict or named tuple"
        )
    if carry is None:
        _refuse_changed_numbers({name: it for name, it in values.items() if name not in found.values()}, result, found)
    return found


def _refuse_changed_numbers(fixed: Mapping[str, Any], result: Any, carried: Places) -> None:
    """Raises a ValueError where a part of the result that is not carried is an argument that is not carried, but for
    the values of Python numbers: each step would get those of the first.
    """
    shapes = {name: shape_of(value, name).flat for name, value in fixed.items()}
    for path, part in _parts_beside(carried, result, ()):
        after = shape_of(part, "result").flat
        for name, before in shapes.items():
            if before.arrays or after.arrays or before.spec == after.spec:
                continue
            for changed, first, second, _ in numbers_that_differ(before, after, name):
                if "None" in (first, second) or (_is_whole(second) and not _is_whole(first)):
                    continue
                places = {it: at[0] if len(at) == 1 else at for at, it in {**carried, path: name}.items()}
                raise ValueError(
                    f"`{place_text(path)}`: found {second} where `{changed}` was {first}, expected a number that no "
                    f"step changes, as each gets {first}; say what is carried, as carry={places!r}, without {name!r} "
                    "where it is another number"
                )


def _is_whole(number: str) -> bool:
    return number.removeprefix("-").isdigit()


def _parts_beside(carried: Places, value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if path in carried:
        return
    yield path, value
    for key, child in (parts_of(value) or {}).items():
        yield from _parts_beside(carried, child, (*path, key))


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
    is_array = isinstance(tree, jax.ShapeDtypeStruct) or _core.is_array_like(tree)
    is_key = is_array and all(jnp.issubdtype(it.dtype, jax.dtypes.prng_key) for it in types)
    is_common = is_array or (_is_plain(tree) and all(it.shape == () for it in types))
    return Shape(Flat(spec, types), by_path, is_array, is_common and not is_key)


def _is_plain(tree: Any) -> bool:
    """Whether it has no class of its own, by which it is known."""
    if type(tree) in (tuple, list, dict):
        return all(map(_is_plain, (parts_of(tree) or {}).values()))
    return tree is None or jax.tree_util.all_leaves([tree])


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
    """Names what is otherwise in a part of a result that has an array where an argument has one."""
    for path, part in [((), result), *(((key,), it) for key, it in (parts_of(result) or {}).items())]:
        shape = shape_of(part, "result")
        for name, argument in arguments.items():
            if not argument.avals.keys().isdisjoint(shape.avals):
                _check(argument, shape, name, path)


class _Part(NamedTuple):
    """A part of a result that has the structure of arguments."""

    path: tuple[Any, ...]
    fits: list[str]  # the names of those that have its types too
    others: list[str]
    is_inside: bool  # another one that fits


def _parts(
    value: Any, path: tuple[Any, ...], arguments: Mapping[str, Shape], named: bool, is_inside: bool = False
) -> Iterator[_Part]:
    shape = shape_of(value, "result")
    alike = [
        name
        for name, argument in arguments.items()
        # Numbers that settle are no sign without an array beside them, unless the user has said so.
        if not argument.avals.keys().isdisjoint(shape.avals) or (named and not argument.avals)
        if _structure_difference(argument, shape, name) is None
    ]
    fits = [name for name in alike if _type_difference(arguments[name], shape, name) is None]
    if alike and (fits or not shape.is_array):
        yield _Part(path, fits, [name for name in alike if name not in fits], is_inside)
    if fits:  # what is too common to be a sign is not looked for in it
        is_inside = True
        arguments = {name: it for name, it in arguments.items() if name not in fits and not it.is_common}
    for key, child in (parts_of(value) or {}).items() if arguments else ():
        yield from _parts(child, (*path, key), arguments, named, is_inside)


def _paired(result: Any, arguments: Mapping[str, Shape], named: bool) -> dict[tuple[Any, ...], str]:
    """An argument and a part that fit each other and nothing else; or of which the key is the argument's name, where
    all other parts that fit it are beside that.
    """
    every = list(_parts(result, (), arguments, named))
    parts = [it for it in every if not it.is_inside]
    places = {name: [it.path for it in parts if name in it.fits] for name in arguments}
    found = {
        path: path[-1]
        for path, fits, *_ in parts
        if path and path[-1] in fits and all(it[:-1] == path[:-1] for it in places[path[-1]])
    }
    said = set(found.values())
    for path, fits, others, _ in parts:
        for name in () if fits else others:
            if name not in said:
                _check(arguments[name], shape_of(_at(result, path), name), name, path)
    left = [it for it in parts if it.path not in found and not said.issuperset(it.fits)]
    for path, fits, *_ in left:
        alike = [it.path for it in left if not set(fits).isdisjoint(it.fits)]
        if len(fits) != 1 or len(alike) != 1 or (path and path[-1] in arguments.keys() - fits):
            missing, place = next(it for it in fits if it not in said), path[0] if len(path) == 1 else path
            _refuse(alike, fits, f"{{{missing!r}: {place!r}}}")
        found[path] = fits[0]
    for path, fits, *_ in [it for it in every if it.is_inside and not said.issuperset(it.fits)]:
        inside = [name for name in fits if name not in found.values()]
        for around, name in found.items():
            if inside and path[: len(around)] == around:
                _refuse([around, path], [name, *inside], f"{name!r}, or as carry={inside[0]!r}")
    for name, part in (parts_of(result) or {}).items():
        if name in arguments.keys() - found.values() and not arguments[name].is_common:
            _check(arguments[name], shape_of(part, name), name, (name,))
    for name in found.values():
        if not named and arguments[name].is_common and (arguments[name].is_array or len(arguments) > 1):
            texts = " and ".join(f"`{place_text(it)}`" for it in places[name])
            kind = "an array alone" if arguments[name].is_array else "of scalars alone"
            raise ValueError(
                f"found {texts} of the type of `{name}`, which is {kind}, and may be another one; say whether it is "
                f"carried by the names of all that is, as carry={tuple(found.values())!r}"
            )
    return found


def _refuse(paths: list[tuple[Any, ...]], names: list[str], remedy: str) -> NoReturn:
    texts, wanted = " and ".join(f"`{place_text(it)}`" for it in paths), " or ".join(f"`{name}`" for name in names)
    raise ValueError(
        f"found {texts} of the structure of {wanted}, expected one of each, or keys that are their names; say which is "
        f"carried, as carry={remedy}"
    )


def _at(result: Any, path: tuple[Any, ...]) -> Any:
    for i, key in enumerate(path):
        children = parts_of(result) or {}
        if key not in children:
            raise ValueError(
                f"found no `{place_text(path[: i + 1])}` in the result of a step, which is to be carried; places are "
                "in tuples, lists, dicts and named tuples"
            )
        result = children[key]
    return result


def place_text(path: tuple[Any, ...], root: str = "result") -> str:
    return root + "".join(f"[{key!r}]" for key in path)
