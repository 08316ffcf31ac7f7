"""What says which leaves to take: predicates, paths, and combinations of filters; and which of them took none."""

import dataclasses
import difflib
import heapq
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from partax import _core
from partax._core import is_array as is_array
from partax._core import is_array_like as is_array_like
from partax._core import is_inexact_array as is_inexact_array
from partax._core import is_inexact_array_like as is_inexact_array_like
from partax._pytree.call_site import call_site
from partax._pytree.short_text import LONGEST, name_text, one_line, short_text

# A bool, a predicate on leaves, a type or a tuple of types, a `Filter`, or a prefix pytree of these.
FilterSpec = Any

_MAX_SEGMENTS = 63
_MAX_ALTERNATIVES = 1024

# A segment of a glob: None for `**`, else the literal pieces between its `*`.
_Segment = tuple[str, ...] | None


@dataclasses.dataclass(frozen=True)
class Filter:
    """A filter made by `by_path`, `any_of`, `all_of` or `not_`: immutable, hashable, equal to another made alike.

    Example:
      >>> weights = partax.by_path("**/weight")
      >>> partax.not_(weights)
      not_(by_path('**/weight'))
      >>> weights == partax.by_path("**/weight")
      True
    """

    _text: str
    _described: tuple[str, Any]  # as the native stages read it
    _glob: str | None = None

    def __repr__(self) -> str:
        return one_line(self._text)


Filter.__module__ = "partax"  # where users find it, and pickles too


def by_path(glob: str | None = None, *, regex: str | re.Pattern[str] | None = None) -> Filter:
    r"""Takes leaves by their path.

    Example:
      >>> model = {"head": {"weight": 1.0, "bias": 2.0}, "tail": {"weight": 3.0}}
      >>> partax.filter(model, partax.by_path("*/weight"))
      {'head': {'bias': None, 'weight': 1.0}, 'tail': {'weight': 3.0}}
      >>> partax.filter(model, partax.by_path("head/**"))
      {'head': {'bias': 2.0, 'weight': 1.0}, 'tail': {'weight': None}}

    Args:
      glob: a pattern of the whole path of a leaf, such as `"layers/*/weight"`. The segments of a path are the names of
        attributes, indices and keys on the way to the leaf, as `jax.tree_util.keystr(path, simple=True)` writes them.
        In a segment, `*` stands for any characters (alone: for one segment, whatever it is); the segment `**` for any
        number of segments, also none; `{a,b}` for either of several patterns. A backslash takes the next character
        as it is. What is below a node is `"layers/0/**"`.
      regex: instead of `glob`, a regular expression that is searched for in the segments joined by `/`; anchor it by
        `^` and `$`.

    Returns:
      A filter for `partition` and all that takes filters.

    Raises:
      TypeError: neither or both were given, or no string.
      ValueError: the pattern is malformed, or has more than 1,024 alternatives or 63 segments.
    """
    if (glob is None) == (regex is None):
        raise TypeError("by_path: found " + ("neither" if glob is None else "both") + ", expected a glob or a regex")
    if glob is not None:
        if not isinstance(glob, str):
            raise TypeError(f"by_path: found a `{type(glob).__name__}`, expected the glob as a str")
        return Filter(f"by_path({glob!r})", ("glob", _parse_glob(glob)), glob)
    try:
        pattern = re.compile(regex)  # pyright: ignore[reportArgumentType, reportCallIssue] - None was ruled out
        pattern.search("")
    except (re.error, TypeError) as error:
        kind = ValueError if isinstance(error, re.error) else TypeError
        raise kind(f"by_path: found the regex {regex!r}, expected a regular expression for str: {error}") from error
    return Filter(f"by_path(regex={pattern.pattern!r})", ("regex", pattern))


def any_of(*filters: FilterSpec) -> Filter:
    """Takes the leaves that at least one filter takes.

    Example:
      >>> partax.filter([1, 2.0, "three"], partax.any_of(int, str))
      [1, None, 'three']

    Args:
      *filters: as of `partition`.

    Returns:
      A filter; of no filters, one that takes nothing.

    Raises:
      ValueError: where it is used, if a member is no filter.
    """
    return _combination("any_of", "any", filters)


def all_of(*filters: FilterSpec) -> Filter:
    """Takes the leaves that every filter takes. The filters are asked in order, up to the first that does not.

    Example:
      >>> model = {"weight": jnp.ones(2), "bias": jnp.zeros(2), "name": "linear"}
      >>> frozen = partax.all_of(partax.is_array, partax.not_(partax.by_path("bias")))
      >>> partax.filter(model, frozen)
      {'bias': None, 'name': None, 'weight': Array([1., 1.], dtype=float32)}

    Args:
      *filters: as of `partition`.

    Returns:
      A filter; of no filters, one that takes everything.

    Raises:
      ValueError: where it is used, if a member is no filter.
    """
    return _combination("all_of", "all", filters)


def not_(filter: FilterSpec) -> Filter:
    """Takes the leaves that a filter does not take.

    Example:
      >>> partax.filter([1, 2.0, "three"], partax.not_(str))
      [1, 2.0, None]

    Args:
      filter: as of `partition`.

    Returns:
      A filter.

    Raises:
      ValueError: where it is used, if `filter` is none.
    """
    return _combination("not_", "not", (filter,))


def _combination(name: str, described: str, members: tuple[FilterSpec, ...]) -> Filter:
    return Filter(f"{name}({', '.join(map(filter_name, members))})", (described, members))


def filter_name(filter: FilterSpec) -> str:
    """A filter as an error message calls it."""
    if isinstance(filter, tuple) and filter and all(isinstance(item, type) for item in filter):
        return f"({', '.join(filter_name(item) for item in filter)})"
    name = getattr(filter, "__qualname__", None)
    return name_text(name) if isinstance(name, str) else short_text(filter, LONGEST)


def _parse_glob(glob: str) -> tuple[tuple[_Segment, ...], ...]:
    """The alternatives of a glob, for the native matcher."""
    tokens = re.findall(r"\\?.", glob, re.DOTALL)  # characters, each with the backslash that takes it as it is
    if tokens and tokens[-1] == "\\":
        raise ValueError(f"by_path: found a backslash at the end of {glob!r}, expected a character after it")
    alternatives = tuple(map(_split, _expand(tokens, glob)))
    for segments in alternatives:
        if len(segments) > _MAX_SEGMENTS:
            raise ValueError(f"by_path: found {len(segments)} segments in {glob!r}, expected at most {_MAX_SEGMENTS}")
    return alternatives


def _expand(tokens: list[str], glob: str) -> list[list[str]]:
    """Every way to choose one of each pair of braces' alternatives."""
    # The open braces: what was read before each, and its alternatives so far. The outermost is the glob itself.
    before: list[list[list[str]]] = []
    choices: list[list[list[str]]] = []
    current: list[list[str]] = [[]]
    for token in tokens:
        if token == "{":
            before.append(current)
            choices.append([])
            current = [[]]
        elif token == "," and before:
            choices[-1] += current
            current = [[]]
        elif token == "}":
            if not before:
                raise ValueError(rf"by_path: found a `}}` without its `{{` in {glob!r}; write `\}}` for the character")
            inner = choices.pop() + current
            outer = before.pop()
            if len(outer) * len(inner) > _MAX_ALTERNATIVES:
                raise ValueError(
                    f"by_path: found more than {_MAX_ALTERNATIVES} alternatives in {glob!r}, expected fewer; "
                    "use any_of(...) or regex="
                )
            current = [prefix + suffix for prefix in outer for suffix in inner]
        else:
            for alternative in current:
                alternative.append(token)
    if before:
        raise ValueError(rf"by_path: found a `{{` without its `}}` in {glob!r}; write `\{{` for the character")
    return current


def _split(tokens: list[str]) -> tuple[_Segment, ...]:
    """The segments of one alternative; the root, which has none, is named by nothing."""
    segments: list[_Segment] = []
    pieces = [""]
    for token in [*tokens, "/"] if tokens else ():
        if token == "/":
            segments.append(None if pieces == ["", "", ""] else tuple(pieces))
            pieces = [""]
        elif token == "*":
            pieces.append("")
        else:
            pieces[-1] += token[-1]
    return tuple(segments)


def install() -> None:
    """Tells the native stages the class of filters that they read. Called once, when partax is imported."""
    _core.configure(described_filter=Filter)


_SHOWN_PATHS = 5
_COMPARED_PATHS = 50
_MOST_WARNED = 1 << 12

_warned: set[str] = set()  # the texts of filters; they need not be hashable
_used: set[tuple[str, int]] = set()  # the same, of what others took first, with the number of leaves of the tree


def check_used(
    pytree: Any,
    filters: Sequence[FilterSpec],
    counts: Sequence[int],
    is_leaf: Callable[[Any], bool] | None,
    strict: bool,
) -> None:
    """Looks at filters that took no leaf: an error if `strict`; else a warning, once, of one that asks for a path."""
    unused = [i for i in range(len(filters)) if counts[i] == 0]
    if strict and unused:
        paths = _paths(pytree, is_leaf)
        lines = [f"  filter {i}, {_unused_filter(filters[i], paths)}" for i in unused]
        raise ValueError("\n".join(["`pytree`: found filters that take no leaf, expected each to take one:", *lines]))
    for filter in (filters[i] for i in unused):
        if not isinstance(filter, Filter) or filter._text in _warned or (filter._text, sum(counts)) in _used:
            continue
        if len(_used) < _MOST_WARNED:
            _used.add((filter._text, sum(counts)))
        for asked in _paths_asked(filter):
            if _core.filter(pytree, asked, False, None, is_leaf)[1] == 0 and (paths := _paths(pytree, is_leaf)):
                if len(_warned) < _MOST_WARNED:
                    _warned.add(filter._text)
                text = f"a filter takes no leaf, {_unused_filter(asked, paths)}"
                warnings.warn_explicit(text, UserWarning, *call_site())


def _paths(pytree: Any, is_leaf: Callable[[Any], bool] | None) -> tuple[str, ...]:
    return _core.flat_partition(pytree, (), "/", False, is_leaf, "pytree")[0].paths


def _paths_asked(filter: Filter) -> Iterator[Filter]:
    """The globs without which a filter takes nothing."""
    name, members = filter._described
    if filter._glob is not None:
        yield filter
    elif name in ("any", "all"):
        for member in members:
            if isinstance(member, Filter):
                yield from _paths_asked(member)


def _unused_filter(filter: FilterSpec, paths: Sequence[str]) -> str:
    """A filter that takes none of the paths, and the nearest of them."""
    pattern = filter._glob if isinstance(filter, Filter) else None
    if pattern is None:
        near, what = paths[:_SHOWN_PATHS], "there are"
    else:
        near = nearest_paths(pattern, paths) or paths[:_SHOWN_PATHS]
        what = "the nearest paths are"
        below = [path for path in paths if path.startswith(pattern.rstrip("/") + "/")]
        if below:
            what = f"it names a node; {pattern.rstrip('/') + '/**'!r} takes what is below it:"
            near = below[:_SHOWN_PATHS]
        elif (dotted := _of_python(pattern)) in paths:
            return f"{filter!r}: did you mean {dotted!r}? Segments are parted by `/`"
    return f"{filter!r}: {what} {', '.join(map(repr, near)) or 'no leaves at all'}"


def _of_python(pattern: str) -> str:
    """A place as Python and jax write it, such as `.layers[0].weight`, as a path."""
    return "/".join(filter(None, re.split(r"[./\[\]'\"]", pattern)))


def nearest_paths(path: str, paths: Sequence[str]) -> list[str]:
    """The existing paths that are most like one that does not exist."""
    if len(paths) > _COMPARED_PATHS:
        # A close comparison with each path of a large tree would take minutes.
        paths = heapq.nlargest(_COMPARED_PATHS, paths, key=lambda other: _common_ends(path, other))
    return difflib.get_close_matches(path, paths, n=_SHOWN_PATHS, cutoff=0.5)


def _common_ends(left: str, right: str) -> int:
    """How many characters two paths share at their beginning and at their end, up to the whole of one."""
    prefix = _common_prefix(left, right)
    return prefix + _common_prefix(left[prefix:][::-1], right[prefix:][::-1])


def _common_prefix(*texts: str) -> int:
    return len(os.path.commonprefix(texts))  # noqa: RUF071 - by characters
