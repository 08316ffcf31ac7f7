"""Paths of the leaves of a tree as strings, and globs and regular expressions that match leaves by their path.

The native stages pass the names in a tree as rows in pre-order. The row of a node is (how its children are named, their
names, their number, whether all are leaves). Unless all are leaves, the rows of the children follow: an integer is the
number of consecutive leaves, and None ends the children.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from jax.tree_util import keystr

# How the children of a node are named; `_ENTRIES` are keys of jax or indices.
_INDICES, _FIELDS, _KEYS, _ENTRIES = range(4)

_Row = tuple[int, Any, int, int] | int | None
_Rows = tuple[_Row, ...]

_MOST_ALTERNATIVES = 1024


def taken_by_path(description: tuple[str, Any], rows: _Rows) -> bytes:
    """For each leaf, whether a filter by path matches it. Called by the native stages."""
    kind, pattern = description
    if kind == "regex":
        return bytes([pattern.search(path) is not None for path in path_texts(rows, "/")])
    match = glob_regex(pattern).fullmatch
    if _is_leaf(rows):
        return bytes([match("") is not None])
    return bytes([match(path + "\0") is not None for path in path_texts(rows, "\0")])


def flat_keys(rows: _Rows, separator: str | None) -> tuple[str, ...]:
    """The path of each leaf; `#2`, `#3` and so on are appended to the later ones of equal paths. Called by the native
    stages.
    """
    keys = path_texts(rows, separator)
    used_keys = set(keys)
    if len(used_keys) == len(keys):
        return tuple(keys)
    counts: dict[str, int] = {}  # of each key so far
    for i, key in enumerate(keys):
        count = counts.get(key, 0) + 1
        if count > 1:
            while (name := f"{key}#{count}") in used_keys:
                count += 1
            used_keys.add(name)
            keys[i] = name
        counts[key] = count
    return tuple(keys)


def path_texts(rows: _Rows, separator: str | None) -> list[str]:
    """The path of each leaf: as `jax.tree_util.keystr` writes it, or its segments joined by a separator."""
    if _is_leaf(rows):
        return [""]
    texts: list[str] = []
    levels: list[Iterator[str]] = []
    paths = iter(("",))  # of the remaining children of the current node
    for row in rows:
        if row is None:
            paths = levels.pop()
        elif isinstance(row, int):
            texts += itertools.islice(paths, row)
        else:
            kind, names, count, is_flat = row
            path = next(paths)
            if separator is None:
                below = _keystr(path, kind, names, count)
            else:
                start = path + separator if levels else ""
                below = [start + segment for segment in _segments(kind, names, count)]
            if is_flat:
                texts += below
            else:
                levels.append(paths)
                paths = iter(below)
    return texts


def _is_leaf(rows: _Rows) -> bool:
    return len(rows) == 1 and isinstance(rows[0], int)


def _keystr(path: str, kind: int, names: Any, count: int) -> list[str]:
    if kind == _FIELDS:
        return [f"{path}.{name}" for name in names]
    if kind == _KEYS:
        return [f"{path}[{key!r}]" for key in names]
    if kind == _INDICES:
        return [f"{path}[{i}]" for i in (range(count) if names is None else names)]
    return [f"{path}[<flat index {key}>]" if isinstance(key, int) else f"{path}{key}" for key in names]


def _segments(kind: int, names: Any, count: int) -> Sequence[str]:
    """The names of the children of a node, in the form of `jax.tree_util.keystr(path, simple=True)`."""
    if kind == _FIELDS:
        return names
    if kind == _ENTRIES:
        return [str(key) if isinstance(key, int) else keystr((key,), simple=True) for key in names]
    return list(map(str, range(count) if names is None else names))


@functools.lru_cache(maxsize=256)
def glob_regex(glob: str) -> re.Pattern[str]:
    """The regular expression of the paths that a glob matches, in which a NUL ends each segment, since keys may contain
    slashes. Raises a ValueError if the glob is malformed.
    """
    tokens = re.findall(r"\\?.", glob, re.DOTALL)  # characters, each with the backslash that escapes it
    if tokens and tokens[-1] == "\\":
        raise ValueError(f"by_path: found a backslash at the end of {glob!r}, expected a character after it")
    return re.compile("|".join(map(_path_regex, _expand(iter(tokens), glob, is_nested=False))))


def _expand(tokens: Iterator[str], glob: str, *, is_nested: bool) -> list[list[str]]:
    """All globs without braces that a glob with braces matches; the tokens up to the next closing brace if nested."""
    alternatives: list[list[str]] = []
    current: list[list[str]] = [[]]
    for token in tokens:
        if token == "{":
            inner = _expand(tokens, glob, is_nested=True)
            if len(current) * len(inner) > _MOST_ALTERNATIVES:
                raise ValueError(
                    f"by_path: found more than {_MOST_ALTERNATIVES} alternatives in {glob!r}, expected fewer; "
                    "join several filters by `|`, or use regex="
                )
            current = [prefix + suffix for prefix in current for suffix in inner]
        elif token == "}" and is_nested:
            return alternatives + current
        elif token == "}":
            raise ValueError(rf"by_path: found a `}}` without its `{{` in {glob!r}; write `\}}` for the character")
        elif token == "," and is_nested:
            alternatives += current
            current = [[]]
        else:
            for alternative in current:
                alternative.append(token)
    if is_nested:
        raise ValueError(rf"by_path: found a `{{` without its `}}` in {glob!r}; write `\{{` for the character")
    return current


def _path_regex(tokens: list[str]) -> str:
    """The regular expression of one alternative; the empty glob matches the root, which has no segments."""
    segments = [[""]] if tokens else []  # each as the parts between its stars
    for token in tokens:
        if token == "/":
            segments.append([""])
        elif token == "*":
            segments[-1].append("")
        else:
            segments[-1][-1] += re.escape(token[-1])
    parts = [""]  # between segments `**`
    for segment in segments:
        if segment == ["", "", ""]:
            parts.append("")
        else:
            parts[-1] += _join(segment, r"[^\x00]") + r"\x00"
    return _join(parts, r"(?:[^\x00]*+\x00)")


def _join(parts: list[str], repeated: str) -> str:
    """Regular expressions with any number of something between them. Atomic groups match each at its first position,
    since backtracking over many stars takes exponential time.
    """
    first, *middle = parts
    last = [f"{repeated}*{middle.pop()}"] if middle else []
    return "".join([first, *(f"(?>{repeated}*?{part})" for part in middle), *last])
