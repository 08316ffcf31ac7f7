"""Which parts of a step's result are carried to the next step, and how a result is split into these and the rest."""

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from partax import _core
from partax._pytree.short_text import array_text
from partax._transforms.carry import ArrayType, Difference, Flat, array_type, first_difference, joined

Path = tuple[int | str, ...]
Place = int | str | Path  # where a part is in a result: a position, a key or a field, or several from the outside in
Carry = tuple[tuple[str, Path | None], ...]  # the names of the arguments that a user says are carried, and from where
Places = Mapping[Path, str]  # the names of the arguments that parts of a result become


class _Description(NamedTuple):
    """The static part of a tree, and the types of its arrays by path."""

    flat: Flat
    types: dict[str, ArrayType]

    @property
    def is_array(self) -> bool:
        return self.types.keys() == {""}

    @property
    def may_be_metric(self) -> bool:
        is_key = self.is_array and jnp.issubdtype(self.types[""].dtype, jax.dtypes.prng_key)
        return not is_key and (self.is_array or all(type.shape == () for type in self.types.values()))


def _describe(tree: Any, root: str) -> _Description:
    leaves, spec = _core.flatten(tree, root)
    types = list(map(array_type, leaves))
    paths = (path.removeprefix(root) for path in spec.dynamic_paths())
    return _Description(Flat(spec, types), dict(zip(paths, types, strict=True)))


def infer_carry(values: Mapping[str, Any], result: Any, carry: Carry | None, has_objects: bool) -> Places:
    """Finds the part of a result that each argument becomes in the next step: where the user says, else the one part
    that matches this argument and no other. `has_objects`: whether a step changes objects too, and may return nothing.
    """
    named = dict(carry) if carry is not None else {it: None for it in values if _describe(values[it], it).types}
    missing, places = dict[str, _Description](), dict[Path, str]()
    for name, path in named.items():
        if name not in values:
            names = ", ".join(f"`{it}`" for it in values) or "none, as objects of Flax are changed in place"
            raise ValueError(f"found {name!r} in carry, expected names of arguments of this call: {names}")
        argument = _describe(values[name], name)
        if path is None:
            missing[name] = argument
        elif path in places:
            raise ValueError(f"found `{path_text(path)}` for `{places[path]}` and `{name}` in carry, expected one")
        else:
            _check(argument, _describe(_part_at(result, path), name), name, path)
            places[path] = name
    matches = dict(_matches(result, (), missing))
    # A part of a match is no match of its own, but a doubt for an argument that matches nothing else.
    inner = missing.keys() - set(itertools.chain(*matches.values()))
    matches |= dict(_matches(result, (), {name: missing[name] for name in inner if not missing[name].is_array}))
    matches = {path: names for path, names in matches.items() if not _overlaps(path, places)}
    for path, names in matches.items():
        alike = [at for at, others in matches.items() if set(names) & set(others) or _overlaps(at, [path])]
        texts = " and ".join(f"`{path_text(at)}`" for at in alike)
        wanted = dict.fromkeys(f"`{name}`" for at in alike for name in matches[at])
        remedy = f"say what is carried, as carry={_proposal(matches)}"
        if len(names) > 1 or len(alike) > 1:
            raise ValueError(
                f"found {texts} of the structure and types of {' or '.join(wanted)}, expected one of each; {remedy}"
            )
        if (
            carry is None
            and missing[names[0]].may_be_metric
            and (len(values) > 1 or (has_objects and missing[names[0]].is_array))
        ):
            raise ValueError(
                f"found {texts} of the type of {names[0]!r}, an array or scalars alone, expected no doubt whether "
                f"these are metrics; {remedy}"
            )
    places |= {path: names[0] for path, names in matches.items()}
    missing = {name: argument for name, argument in missing.items() if name not in places.values()}
    others = [(path, part) for path, part in _parts(result, ()) if not _overlaps(path, places)]
    for path, value in others:  # one that is all but an argument: it has its structure, or an array of it
        part = _describe(value, "result")
        for name, argument in missing.items():
            shared = argument.types.keys() & part.types.keys() - {""}
            is_near = argument.types.keys() == part.types.keys()
            if shared and (is_near or any(argument.types[it][:2] == part.types[it][:2] for it in shared)):
                _check(argument, part, name, path)
    if (missing and carry is not None) or not (places or has_objects):
        wanted = " or ".join(f"`{name}`" for name in missing) or "an argument"
        raise ValueError(
            f"found nothing in the result of a step of the structure and types of {wanted}, expected what the next "
            "step takes, by itself or in a tuple, list, dict or named tuple"
        )
    if carry is None:
        _refuse_changed_numbers({name: it for name, it in values.items() if name not in named}, others, places)
    return places


def _difference(argument: _Description, part: _Description, name: str) -> Difference | None:
    """Why a part of a result cannot be the argument of the next step; Python numbers may become scalars."""
    if argument.flat.spec != part.flat.spec:
        difference = first_difference(argument.flat, part.flat, name, numbers_settle=True)
        if difference is not None:
            return difference
    for path, after in part.types.items():
        before = argument.types.get(path)
        if before is None:
            if after.shape != ():
                return Difference(name + path, "a number", array_text(after))
        elif before[:2] != after[:2] and not (before.weak and joined(before, after)):
            return Difference(name + path, array_text(before), array_text(after))
    return None


def _matches(value: Any, path: Path, arguments: Mapping[str, _Description]) -> Iterator[tuple[Path, list[str]]]:
    part = _describe(value, "result")
    names = [
        name
        for name, argument in arguments.items()
        if (argument.types.keys() & part.types.keys() or not argument.types)
        and _difference(argument, part, name) is None
    ]
    if names:
        yield path, names
    for key, child in _children(value).items() if not names else ():
        yield from _matches(child, (*path, key), arguments)


def _check(argument: _Description, part: _Description, name: str, path: Path) -> None:
    difference = _difference(argument, part, name)
    if difference is not None:
        raise TypeError(
            f"`{difference.path}`: {difference.first} before a step, {difference.second} after it, in "
            f"`{path_text(path)}`; what is carried has to keep its structure, dtypes and shapes; where this is another "
            "value, name in `carry` what is carried"
        )


def _refuse_changed_numbers(fixed: Mapping[str, Any], parts: Iterable[tuple[Path, Any]], places: Places) -> None:
    """Raises a ValueError where a step returns other numbers for an argument of numbers: each step gets the first."""
    for (path, part), (name, value) in itertools.product(parts, fixed.items()):
        before, after = _describe(value, name).flat, _describe(part, name).flat
        difference = None if after.arrays else first_difference(before, after, name)
        if difference is not None and first_difference(before, after, name, numbers_settle=True) is None:
            carry = _proposal({at: [it] for at, it in {**places, path: name}.items()})
            raise ValueError(
                f"`{path_text(path)}`: found {difference.second} where `{difference.path}` was {difference.first}, "
                f"expected a number that no step changes, as each gets {difference.first}; say what is carried, as "
                f"carry={carry}, without {name!r} where it is another number"
            )


def _proposal(matches: Mapping[Path, list[str]]) -> str:
    """A `carry=` with a part for each name that is left for one, in the order of the result."""
    carry = dict[str, Path]()
    for path, names in matches.items():
        name = next((it for it in names if it not in carry), None)
        if name is not None and not _overlaps(path, carry.values()):
            carry[name] = path
    return repr({name: path[0] if len(path) == 1 else path for name, path in carry.items()})


def _overlaps(path: Path, others: Iterable[Path]) -> bool:
    """Whether a path leads to one of the others, into it or around it."""
    return any(all(map(operator.eq, path, other)) for other in others)


def _children(value: Any) -> dict[Any, Any]:
    """The parts of a plain container, by key."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    if type(value) in (tuple, list):
        return dict(enumerate(value))
    return dict(value) if type(value) is dict else {}


def _parts(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    yield path, value
    for key, child in _children(value).items():
        yield from _parts(child, (*path, key))


def _part_at(result: Any, path: Path) -> Any:
    for i, key in enumerate(path):
        children = _children(result)
        if key not in children:
            raise ValueError(f"found no `{path_text(path[: i + 1])}` in the result of a step, which is to be carried")
        result = children[key]
    return result


def split_result(places: Places, result: Any) -> tuple[dict[str, Any], Any]:
    """What of a result is carried, by name, and the result with None there."""
    carried = {name: _part_at(result, path) for path, name in places.items()}
    return carried, _with_parts(result, dict.fromkeys(places))


def merge_result(places: Places, carried: Mapping[str, Any], rest: Any) -> Any:
    return _with_parts(rest, {path: carried[name] for path, name in places.items()})


def _with_parts(value: Any, parts: Mapping[Path, Any]) -> Any:
    """The same tree with other parts, by the path to each."""
    if not parts or () in parts:
        return parts.get((), value)
    children = _children(value)
    for key in dict.fromkeys(path[0] for path in parts):
        children[key] = _with_parts(children[key], {path[1:]: it for path, it in parts.items() if path[0] == key})
    if type(value) is dict:
        return children
    return type(value)(*children.values()) if hasattr(value, "_fields") else type(value)(children.values())


def path_text(path: Iterable[Any], root: str = "result") -> str:
    return root + "".join(f"[{key!r}]" for key in path)
