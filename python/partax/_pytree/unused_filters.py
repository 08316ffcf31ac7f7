"""Filters that take no leaf: which, and what they may have been meant to be."""

import difflib
import heapq
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from partax import _core
from partax._pytree.call_site import call_site
from partax._pytree.filters import Filter, FilterSpec

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
    shown = ", ".join(repr(path) for path in near) or "no leaves at all"
    return f"{filter!r}: {what} {shown}"


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
