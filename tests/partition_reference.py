"""A slow model of filters, partitions and flat dictionaries over jax.tree_util, without native code of partax.

Filters that only partax can make (`by_path`, `|`, `&`, `~`) are described by classes, of which `for_partax` makes the
filters of partax. All other filters are as users write them.
"""

import functools
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import partax
from partax import is_array
from reference import assert_exact, one_level
from trees import Bag, Cell, Layer

IsLeaf = Callable[[Any], bool] | None
Key = Any  # an entry of a key path of jax


@dataclass(frozen=True)
class Glob:
    """`by_path(pattern)`."""

    pattern: str


@dataclass(frozen=True)
class Regex:
    """`by_path(regex=pattern)`."""

    pattern: str


@dataclass(frozen=True)
class AnyOf:
    members: tuple[Any, ...]


@dataclass(frozen=True)
class AllOf:
    members: tuple[Any, ...]


@dataclass(frozen=True)
class Not:
    inner: Any


NOTHING = is_array & ~is_array


def any_of(*members: Any) -> Any:
    """The members joined by `|`, whatever they are and however many."""
    return functools.reduce(operator.or_, members, NOTHING)


def all_of(*members: Any) -> Any:
    """The members joined by `&`."""
    return functools.reduce(operator.and_, members, ~NOTHING)


def not_(member: Any) -> Any:
    return ~any_of(member)


def for_partax(model: Any) -> Any:
    """The filter that partax is given for a filter of the model."""

    def one(f: Any) -> Any:
        match f:
            case Glob(pattern):
                return partax.by_path(pattern)
            case Regex(pattern):
                return partax.by_path(regex=pattern)
            case AnyOf(members):
                return any_of(*map(for_partax, members))
            case AllOf(members):
                return all_of(*map(for_partax, members))
            case Not(inner):
                return not_(for_partax(inner))
        return f

    return jax.tree.map(one, model)


# --- the tree


@dataclass(frozen=True)
class Place:
    """The place of a leaf: the key path, the nodes from the root down to the leaf, and the number of each child."""

    path: tuple[Key, ...]
    chain: tuple[Any, ...]
    steps: tuple[int, ...]

    @property
    def leaf(self) -> Any:
        return self.chain[-1]

    @property
    def depth(self) -> int:
        return len(self.chain) - 1

    @property
    def segments(self) -> list[str]:
        return [jax.tree_util.keystr((key,), simple=True, separator="/") for key in self.path]


def places(tree: Any, is_leaf: IsLeaf = None) -> list[Place]:
    """Every leaf, in jax.tree's order."""

    def visit(place: Place) -> Iterator[Place]:
        pairs = None if is_leaf is not None and is_leaf(place.leaf) else one_level(place.leaf)
        if pairs is None:
            yield place
            return
        for i, (key, child) in enumerate(pairs):
            yield from visit(Place((*place.path, key), (*place.chain, child), (*place.steps, i)))

    return list(visit(Place((), (tree,), ())))


def keys_of(leaf_places: Sequence[Place], separator: str | None = None) -> list[str]:
    """The keys of a flat dictionary, as jax writes them; repeated keys are numbered from 2."""
    style: dict[str, Any] = {} if separator is None else {"simple": True, "separator": separator}
    raw = [jax.tree_util.keystr(place.path, **style) for place in leaf_places]
    keys: list[str] = []
    for key in raw:
        number, name = 1, key
        while name in keys or (number > 1 and name in raw):
            number += 1
            name = f"{key}#{number}"
        keys.append(name)
    return keys


# --- globs


ESCAPED = 0x10F000  # added to characters after a backslash; no path has the results


def alternatives(pattern: str) -> list[str]:
    """Every way to choose one of each group in braces."""

    def hide(match: re.Match[str]) -> str:
        return chr(ESCAPED + ord(match[1])) if match[1] in "*{},/\\" else match[1]

    def chosen(text: str) -> list[str]:
        group = re.search(r"\{([^{}]*)\}", text)
        if group is not None:
            before, after = text[: group.start()], text[group.end() :]
            return [other for choice in group[1].split(",") for other in chosen(before + choice + after)]
        if set(text) & set("{}\\"):
            raise ValueError("a brace is not opened or closed, or nothing follows the last backslash")
        return [text]

    return chosen(re.sub(r"\\(.)", hide, pattern, flags=re.DOTALL))


def _segments_match(pattern: Sequence[str], segments: Sequence[str]) -> bool:
    if not pattern:
        return not segments
    if pattern[0] == "**":
        return any(_segments_match(pattern[1:], segments[i:]) for i in range(len(segments) + 1))
    if not segments:
        return False
    literals = [[chr(ord(c) - ESCAPED * (c >= chr(ESCAPED))) for c in text] for text in pattern[0].split("*")]
    regex = ".*".join(re.escape("".join(literal)) for literal in literals)
    return re.fullmatch(regex, segments[0], re.DOTALL) is not None and _segments_match(pattern[1:], segments[1:])


def glob_matches(pattern: str, segments: Sequence[str]) -> bool:
    return any(_segments_match(text.split("/") if text else [], segments) for text in alternatives(pattern))


# --- filters


def depth_taken(f: Any, place: Place, start: int = 0) -> int | None:
    """The depth at which the filter of the subtree at depth `start` matches a leaf; None if it does not."""
    if isinstance(f, type) or (type(f) is tuple and len(f) > 0 and all(isinstance(x, type) for x in f)):
        return next((i for i in range(start, len(place.chain)) if isinstance(place.chain[i], f)), None)
    if isinstance(f, AnyOf | AllOf):
        depths = [depth_taken(member, place, start) for member in f.members]
        matches = [depth for depth in depths if depth is not None]
        if isinstance(f, AnyOf):
            return min(matches, default=None)
        return min(matches, default=place.depth) if len(matches) == len(depths) else None
    match f:
        case bool():
            takes = f
        case Glob(pattern):
            takes = glob_matches(pattern, place.segments)
        case Regex(pattern):
            takes = re.search(pattern, "/".join(place.segments)) is not None
        case Not(inner):
            takes = depth_taken(inner, place, start) is None
        case _:
            children = one_level(f)
            if children is not None:
                return depth_taken(children[place.steps[start]][1], place, start + 1)
            takes = f(place.leaf)
    return place.depth if takes else None


def owner(filters: Sequence[Any], place: Place) -> int:
    """Which filter gets the leaf: smallest depth, then the first; the number of filters if none takes it."""
    depths = [(depth_taken(f, place), i) for i, f in enumerate(filters)]
    return min(((depth, i) for depth, i in depths if depth is not None), default=(0, len(filters)))[1]


# --- results


def partition(tree: Any, filters: Sequence[Any], *, replace: Any = None, is_leaf: IsLeaf = None) -> tuple[Any, ...]:
    leaf_places = places(tree, is_leaf)
    owners = [owner(filters, place) for place in leaf_places]
    treedef = jax.tree.structure(tree, is_leaf=is_leaf)
    return tuple(
        jax.tree.unflatten(
            treedef, [p.leaf if o == part else replace for p, o in zip(leaf_places, owners, strict=True)]
        )
        for part in range(len(filters) + 1)
    )


def flat_partition(
    tree: Any, filters: Sequence[Any], *, separator: str | None = None, is_leaf: IsLeaf = None
) -> tuple[dict[str, Any], ...]:
    leaf_places = places(tree, is_leaf)
    parts: tuple[dict[str, Any], ...] = tuple({} for _ in range(len(filters) + 1))
    for place, key in zip(leaf_places, keys_of(leaf_places, separator), strict=True):
        parts[owner(filters, place)][key] = place.leaf
    return parts


# --- comparisons


def assert_identical(actual: Any, expected: Any) -> None:
    """Exactly the same types of nodes, aux data and key order, and the same objects as leaves."""

    def assert_same_leaf(actual: Any, expected: Any, path: str) -> None:
        assert actual is expected, f"{path}: {actual!r} is not {expected!r}"

    assert_exact(actual, expected, leaf=assert_same_leaf)


def assert_identical_dicts(actual: Any, expected: dict[str, Any]) -> None:
    """A plain dict with the same keys in the same order and the same objects."""
    assert type(actual) is dict
    assert list(actual) == list(expected)
    for key, leaf in expected.items():
        assert actual[key] is leaf, key


# --- short ways to ask partax


def paths_in(tree: Any) -> list[str]:
    """The paths of the leaves that are not None, their segments joined by slashes."""
    return ["/".join(place.segments) for place in places(tree)]


def parts_of(tree: Any, *filters: Any, **options: Any) -> list[list[str]]:
    """The paths of the leaves that each filter got, and last those of the rest."""
    return [paths_in(part) for part in partax.partition(tree, *filters, **options)]


def taken(tree: Any, f: Any, **options: Any) -> list[str]:
    """The paths that a filter takes when it is alone; all ways to ask agree."""
    first, rest = partax.partition(tree, f, **options)
    assert_identical(partax.filter(tree, f, **options), first)
    assert_identical(partax.filter(tree, f, inverse=True, **options), rest)
    return paths_in(first)


def which(tree: list[Any], *filters: Any, **options: Any) -> list[int]:
    """For each leaf the part that it is in."""
    parts = partax.partition(tree, *filters, replace=..., **options)
    return [next(i for i, part in enumerate(parts) if part[place] is not ...) for place in range(len(tree))]


def takes(tree: list[Any], f: Any, **options: Any) -> list[bool]:
    return [part == 0 for part in which(tree, f, **options)]


# --- cases


FILTERS: dict[str, tuple[Any, ...]] = {
    "no filter": (),
    "one": (is_array,),
    "predicates": (is_array, callable, lambda x: isinstance(x, int)),
    "bools": (False, True, True),
    "types": (jax.Array, np.ndarray, (int, str), Layer, list),
    "nodes": (Layer, Bag, (tuple, Cell), eqx.Module),
    "paths": (Glob("**/weight"), Glob("{0,a,layers}/**"), Regex("b"), Glob("*/*/*")),
    "all kinds": (Not(is_array), Layer, Glob("**/0"), False, is_array),
}
over_filters = pytest.mark.parametrize("filters", [pytest.param(f, id=name) for name, f in FILTERS.items()])


def reread(tree: Any) -> Any:
    """The tree as jax writes it: it sorts the keys of dicts."""
    return jax.tree.map(lambda x: x, tree)
