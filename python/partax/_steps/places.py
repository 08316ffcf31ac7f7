"""Which parts of a step's result are carried to the next step, and how a result is split into these and the rest."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from partax._pytree.filters import is_key
from partax._transforms.carry import can_settle, common_types
from partax._transforms.split import Split

Path = tuple[int | str, ...]
Place = int | str | Path  # where a part is in a result: a position, a key or a field, or several from the outside in
Places = tuple[tuple[Path, str], ...]  # the parts of a result that are carried, each to the argument of that name


def find_carry(values: Mapping[str, Any], result: Any, carry: Places | None, in_place: Collection[str]) -> Places:
    """The parts of a result that are arguments of the next step: those that a user names, else for each argument with
    arrays or numbers the one part that matches it and no other. Arguments that are changed `in_place` may have none.
    """
    for _, name in carry or ():
        if name not in values:
            names = ", ".join(f"`{name}`" for name in values) or "none, as objects of Flax are changed in place"
            raise ValueError(f"found {name!r} in carry, expected names of arguments of this call: {names}")
    if carry is not None:
        return carry
    splits = {name: Split.of(value, root=name) for name, value in values.items()}
    arguments = {name: split for name, split in splits.items() if any(map(can_settle, split.values.values()))}
    matches = _matches(result, arguments)
    for name, argument in arguments.items():
        parts = [path for path, other in matches if other == name]
        names = dict.fromkeys(f"`{other}`" for path, other in matches if path in parts)
        texts = " and ".join(f"`{path_text(path)}`" for path in parts)
        if len(parts) > 1 or len(names) > 1:
            problem = f"{texts} of the structure and types of {' or '.join(names)}"
        elif parts and (len(values) > 1 or in_place) and _may_be_metric(argument):
            problem = f"{texts} of the type of `{name}`, an array or scalars alone, which may be a metric"
        elif not parts and name not in in_place:
            problem = f"no part of the structure and types of `{name}`"
        else:
            continue
        raise ValueError(
            f"found {problem}, expected one part of the result of a step for each argument; say what is carried, as "
            f"carry={_suggestion(matches)}, without what is the same in each step"
        )
    return matches


def _may_be_metric(argument: Split) -> bool:
    arrays = argument.leaves.values()
    return not any(map(is_key, arrays)) and ("" in argument.values or all(array.shape == () for array in arrays))


def _matches(result: Any, arguments: Mapping[str, Split]) -> Places:
    """The outermost parts of a result that can be arguments, each with each of these."""
    matches = Places()
    for path, value in _parts(result):
        if not any(path[: len(outer)] == outer for outer, _ in matches):
            part = Split.of(value, root="result")
            matches += tuple((path, name) for name, argument in arguments.items() if _is_match(argument, part))
    return matches


def _is_match(argument: Split, part: Split) -> bool:
    try:
        common_types({"before": argument, "after": part}, "", "")
    except TypeError:
        return False
    return True


def _suggestion(matches: Places) -> dict[str, Any]:
    """A `carry` with one part for each name, in the order of the result."""
    carry = dict[str, Path]()
    for path, name in matches:
        if name not in carry and path not in carry.values():
            carry[name] = path
    return {name: path[0] if len(path) == 1 else path for name, path in carry.items()}


def _children(value: Any) -> dict[Any, Any]:
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
