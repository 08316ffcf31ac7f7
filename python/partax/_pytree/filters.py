"""Filters of leaves: predicates, paths and combinations of these; errors and warnings for filters without a match."""

import dataclasses
import difflib
import inspect
import re
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax

from partax import _core
from partax._pytree.call_site import call_site
from partax._pytree.paths import glob_regex
from partax._pytree.short_text import LONGEST, name_text, one_line, short_text

IsLeaf = Callable[[Any], bool] | None

FilterSpec = Any  # a filter as `partition` takes it

_Kind = Literal["predicate", "glob", "regex", "any", "all", "not"]
_SIGNS: dict[str, str] = {"any": " | ", "all": " & "}


@dataclasses.dataclass(frozen=True, repr=False)
class Filter:
    """A filter that can be combined: `a & b` matches what both match, `a | b` what either matches, `~a` what `a` does
    not match. Predicates such as `is_array` and results of `by_path` are instances; `a` or `b` has to be one.

    Example:
      >>> weights = partax.by_path("**/weight")
      >>> partax.is_array & ~weights
      is_array & ~by_path('**/weight')
      >>> partax.filter([1, 2.0, "three"], ~partax.is_array & (int | partax.by_path("2")))
      [1, None, 'three']

    Filters are immutable, hashable, and equal if their parts are. In `a & b`, `b` is called only if `a` matches.

    See Also: The guide "Partition and combine trees".
    """

    _described: tuple[_Kind, Any]  # the native stages read this attribute

    def __invert__(self) -> "Filter":
        return Filter(("not", (self,)))

    def __and__(self, other: FilterSpec) -> "Filter":
        return _joined("all", self, other)

    def __rand__(self, other: FilterSpec) -> "Filter":
        return _joined("all", other, self)

    def __or__(self, other: FilterSpec) -> "Filter":
        return _joined("any", self, other)

    def __ror__(self, other: FilterSpec) -> "Filter":
        return _joined("any", other, self)

    def __repr__(self) -> str:
        return one_line(_text(self))


class Predicate(Filter):
    """A native predicate. Each has its own class, so that a call does not run Python code of partax."""

    __name__: str

    def __call__(self, element: object, /) -> bool: ...

    def __reduce__(self) -> str:
        return self.__name__


def _predicate(function: Any) -> Predicate:
    predicate = type("Predicate", (Predicate,), {"__call__": staticmethod(function)})(("predicate", function))
    names = {name: getattr(function, name) for name in ("__name__", "__qualname__", "__doc__")}
    vars(predicate).update(names, __module__="partax", __signature__=inspect.signature(function))
    return predicate


Filter.__module__ = "partax.tree"  # the public module, which pickles also name

is_array = _predicate(_core.is_array)
is_array_like = _predicate(_core.is_array_like)
is_inexact_array = _predicate(_core.is_inexact_array)
_core.configure(described_filter=Filter, predicates=(is_array, is_array_like, is_inexact_array))


def is_key(array: Any) -> bool:
    return jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key)


def by_path(glob: str | None = None, *, regex: str | re.Pattern[str] | None = None) -> Filter:
    r"""Match leaves by their path.

    Example:
      >>> model = {"head": {"weight": 1.0, "bias": 2.0}, "tail": {"weight": 3.0}}
      >>> partax.filter(model, partax.by_path("*/weight"))
      {'head': {'bias': None, 'weight': 1.0}, 'tail': {'weight': 3.0}}
      >>> partax.filter(model, partax.by_path("head/**"))
      {'head': {'bias': 2.0, 'weight': 1.0}, 'tail': {'weight': None}}

    The segments of a path are those of `jax.tree_util.keystr(path, simple=True)`. In a glob, `*` matches any characters
    of a segment, the segment `**` any number of segments, and `{a,b}` either pattern. A backslash escapes a character.

    Args:
      glob: A pattern of the whole path of a leaf, such as `"layers/*/weight"`. Default: `regex` is used.
      regex: Instead, a regular expression that is searched for in the segments joined by `/`. Default: `glob` is used.

    Returns:
      A `Filter`.

    Raises:
      TypeError, ValueError: Neither or both are passed, or the pattern is malformed or has over 1,024 alternatives.

    See Also: The guide "Partition and combine trees".
    """
    if (glob is None) == (regex is None):
        raise TypeError("by_path: found " + ("neither" if glob is None else "both") + ", expected a glob or a regex")
    if glob is not None:
        if not isinstance(glob, str):
            raise TypeError(f"by_path: found a `{type(glob).__name__}`, expected the glob as a str")
        glob_regex(glob)  # raises if the glob is malformed
        return Filter(("glob", glob))
    try:
        pattern = re.compile(regex)  # pyright: ignore[reportArgumentType, reportCallIssue] - not None
        pattern.search("")
    except (re.error, TypeError) as error:
        kind = ValueError if isinstance(error, re.error) else TypeError
        raise kind(f"by_path: found the regex {regex!r}, expected one for str: {error}") from error
    return Filter(("regex", pattern))


def _joined(kind: Literal["any", "all"], left: FilterSpec, right: FilterSpec) -> Filter:
    """Combine two filters, with the members of a chain at one level, so that a long chain is not nested."""
    members: list[FilterSpec] = []
    for side in (left, right):
        is_chain = isinstance(side, Filter) and side._described[0] == kind
        members += side._described[1] if is_chain else (side,)
    return Filter((kind, tuple(members)))


def _text(filter: FilterSpec, *, is_member: bool = False) -> str:
    """The filter as Python parses it, with parentheses if it is a combination within another."""
    if isinstance(filter, tuple) and filter and all(isinstance(item, type) for item in filter):
        return f"({', '.join(map(_text, filter))})"
    if not isinstance(filter, Filter):
        name = getattr(filter, "__qualname__", None)
        text = name_text(name) if isinstance(name, str) else short_text(filter, LONGEST)
        return f"({text})" if isinstance(filter, types.UnionType) else text
    kind, argument = filter._described
    if kind in _SIGNS:
        text = _SIGNS[kind].join(_text(member, is_member=True) for member in argument)
        return f"({text})" if is_member else text
    if kind == "not":
        return "~" + _text(argument[0], is_member=True)
    if kind == "predicate":
        return argument.__name__
    return f"by_path({argument!r})" if kind == "glob" else f"by_path(regex={argument.pattern!r})"


_SHOWN_PATHS = 5
_COMPARED_PATHS = 500  # since `difflib` takes up to a millisecond for each

_checked: set[tuple[str, int]] = set()  # the text of each glob that was checked, and the number of leaves


def check_used(
    pytree: Any, filters: Sequence[FilterSpec], counts: Sequence[int], is_leaf: IsLeaf, strict: bool = False
) -> None:
    """Raise for a filter that matches no leaf if `strict`; otherwise warn once for each filter with a path."""
    unused = [i for i, count in enumerate(counts[: len(filters)]) if count == 0]
    if strict and unused:
        paths = _paths(pytree, is_leaf)
        lines = [f"  filter {i}, {_unused_filter(filters[i], paths)}" for i in unused]
        raise ValueError("\n".join(["`pytree`: found filters that take no leaf, expected each to take one:", *lines]))
    for glob in (glob for i in unused for glob in _globs_in(filters[i])):
        if (check := (_text(glob), sum(counts))) in _checked:
            continue
        _checked.add(check)
        if _core.partition(pytree, (glob,), None, is_leaf, 0)[1][0] == 0 and (paths := _paths(pytree, is_leaf)):
            message = f"a filter takes no leaf, {_unused_filter(glob, paths)}"
            warnings.warn_explicit(message, UserWarning, *call_site())


def _paths(pytree: Any, is_leaf: IsLeaf) -> tuple[str, ...]:
    return _core.flat_partition(pytree, (), "/", False, is_leaf, "pytree")[0].paths


def _globs_in(filter: FilterSpec) -> Iterator[Filter]:
    kind, argument = filter._described if isinstance(filter, Filter) else ("predicate", ())
    if kind == "glob":
        yield filter
    elif kind in _SIGNS:
        for member in argument:
            yield from _globs_in(member)


def _unused_filter(filter: FilterSpec, paths: Sequence[str]) -> str:
    """The text of a filter that matches none of the paths, with paths, or a pattern, that may be meant."""
    kind, pattern = filter._described if isinstance(filter, Filter) else ("predicate", "")
    meant: Sequence[str] = paths[:_SHOWN_PATHS]
    if kind == "glob":
        plain = "/".join(re.findall(r"[^./\[\]'\"]+", pattern))  # of a path as Python writes it: `.layers[0].weight`
        is_node = any(path.startswith(f"{plain}/") for path in paths)
        meant = [f"{plain}/**"] if is_node else [plain] if plain in paths else nearest_paths(pattern, paths) or meant
    return f"{filter!r}; did you mean {', '.join(map(repr, meant)) or 'no leaves at all'}?"


def nearest_paths(path: str, paths: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(path, paths[:_COMPARED_PATHS], n=_SHOWN_PATHS, cutoff=0.5)
