"""Which parts of a step's result are carried to the next step, and how a result is split into these and the rest."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from partax import _core
from partax._pytree.short_text import array_text
from partax._transforms.carry import ArrayType, Difference, Flat, array_type, first_difference, joined

Path = tuple[int | str, ...]
Place = int | str | Path  # where a part is in a result: a position, a key or a field, or several from the outside in
Places = tuple[tuple[Path, str], ...]  # the parts of a result that are carried, each to the argument of that name


class _Part(NamedTuple):
    """The static part of an argument or of a part of a result, and the types of its arrays by path."""

    flat: Flat
    types: dict[str, ArrayType]

    @classmethod
    def of(cls, tree: Any, root: str = "result") -> "_Part":
        leaves, spec = _core.flatten(tree, root)
        types = list(map(array_type, leaves))
        paths = (path.removeprefix(root) for path in spec.dynamic_paths())
        return cls(Flat(spec, types), dict(zip(paths, types, strict=True)))

    @property
    def may_be_metric(self) -> bool:
        is_array = self.types.keys() == {""}
        is_key = is_array and jnp.issubdtype(self.types[""].dtype, jax.dtypes.prng_key)
        return not is_key and (is_array or all(type.shape == () for type in self.types.values()))


def find_carry(values: Mapping[str, Any], result: Any, carry: Places | None, has_objects: bool) -> Places:
    """The parts of a result that are arguments of the next step: those that a user names, else each that matches one
    argument and no other. `has_objects`: whether a step changes objects too, and may return nothing.
    """
    for _, name in carry or ():
        if name not in values:
            names = ", ".join(f"`{name}`" for name in values) or "none, as objects of Flax are changed in place"
            raise ValueError(f"found {name!r} in carry, expected names of arguments of this call: {names}")
    if carry is not None:
        return carry
    arguments = {name: _Part.of(value, name) for name, value in values.items()}
    places = _matches(result, {name: argument for name, argument in arguments.items() if argument.types})
    for path, name in places:
        alike = [place for place in places if place[0] == path or place[1] == name]
        texts = " and ".join(dict.fromkeys(f"`{path_text(path)}`" for path, _ in alike))
        if len(alike) > 1:
            names = " or ".join(dict.fromkeys(f"`{name}`" for _, name in alike))
            raise ValueError(
                f"found {texts} of the structure and types of {names}, expected one of each; {_remedy(places)}"
            )
        is_alone = len(values) == 1 and not has_objects
        if not is_alone and arguments[name].may_be_metric:
            raise ValueError(
                f"found {texts} of the type of {name!r}, an array or scalars alone, expected no doubt whether these "
                f"are metrics; {_remedy(places)}"
            )
    _refuse_near({name: arguments[name] for name in values if name not in dict(places).values()}, result, places)
    if not places and not has_objects:
        names = " or ".join(f"`{name}`" for name in values) or "an argument"
        raise ValueError(
            f"found nothing in the result of a step of the structure and types of {names}, expected what the next "
            "step takes, by itself or in a tuple, list, dict or named tuple"
        )
    return places


def _matches(result: Any, arguments: Mapping[str, _Part]) -> Places:
    """Return the outermost parts of a result that can be arguments, each with each of these."""
    matches = Places()
    for path, value in _parts(result):
        if any(path[: len(outer)] == outer for outer, _ in matches):
            continue
        part = _Part.of(value)
        for name, argument in arguments.items():
            has_shared = bool(argument.types.keys() & part.types.keys())
            if has_shared and _difference(argument, part, name) is None:
                matches += ((path, name),)
    return matches


def _difference(argument: _Part, part: _Part, name: str) -> Difference | None:
    """Return why a part of a result cannot be the next argument, or None; Python numbers may become scalars."""
    if argument.flat.spec != part.flat.spec:
        difference = first_difference(argument.flat, part.flat, name, numbers_settle=True)
        if difference is not None:
            return difference
    for path, after in part.types.items():
        before = argument.types.get(path)
        if before is not None and before[:2] != after[:2] and not (before.weak and joined(before, after)):
            return Difference(name + path, array_text(before), array_text(after))
    return None


def _refuse_near(arguments: Mapping[str, _Part], result: Any, places: Places) -> None:
    """Raise a TypeError if a part is almost an argument that is not carried, and so the same in each step: it has
    the structure of its arrays, one of them, or other numbers if the argument has numbers alone.
    """
    for path, value in _parts(result):
        if any(path[: len(at)] == at[: len(path)] for at, _ in places):  # in a part that is carried, or around it
            continue
        part = _Part.of(value)
        for name, argument in arguments.items():
            shared = argument.types.keys() & part.types.keys() - {""}
            is_near = argument.types.keys() == part.types.keys()
            has_numbers_alone = is_near and not argument.types
            if has_numbers_alone and first_difference(argument.flat, part.flat, name, numbers_settle=True) is None:
                difference = first_difference(argument.flat, part.flat, name)
            elif shared and (is_near or any(argument.types[at][:2] == part.types[at][:2] for at in shared)):
                difference = _difference(argument, part, name)
            else:
                continue
            if difference is not None:
                raise TypeError(
                    f"`{difference.path}`: {difference.first} before a step, {difference.second} after it, in "
                    f"`{path_text(path)}`; expected the same structure, dtypes and shapes in what is carried, or "
                    f"{_remedy((*places, (path, name)))}"
                )


def _remedy(places: Places) -> str:
    """Return a `carry=` with one part for each name, in the order of the result."""
    carry = dict[str, Path]()
    for path, name in places:
        if name not in carry and path not in carry.values():
            carry[name] = path
    places_by_name = {name: path[0] if len(path) == 1 else path for name, path in carry.items()}
    return f"say what is carried, as carry={places_by_name}"


def _children(value: Any) -> dict[Any, Any]:
    """Return the parts of a plain container, by key."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    if type(value) in (tuple, list):
        return dict(enumerate(value))
    return dict(value) if type(value) is dict else {}


def _parts(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield path, value
    for key, child in _children(value).items():
        yield from _parts(child, (*path, key))


def part_at(result: Any, path: Path) -> Any:
    for key in path:
        children = _children(result)
        if key not in children:
            raise ValueError(f"found no `{path_text(path)}` in the result of a step, which is to be carried")
        result = children[key]
    return result


def with_parts(value: Any, parts: Mapping[Path, Any]) -> Any:
    """Return the tree with other parts, by the path to each."""
    if not parts or () in parts:
        return parts.get((), value)
    children = _children(value)
    for key in dict.fromkeys(path[0] for path in parts):
        children[key] = with_parts(children[key], {path[1:]: part for path, part in parts.items() if path[0] == key})
    if type(value) is dict:
        return children
    return type(value)(*children.values()) if hasattr(value, "_fields") else type(value)(children.values())


def path_text(path: Iterable[Any], root: str = "result") -> str:
    return root + "".join(f"[{key!r}]" for key in path)
