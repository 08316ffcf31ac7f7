"""Paths of the leaves of a tree as strings, and globs and regular expressions that match leaves by their path."""

import functools
import re
from collections import Counter
from typing import Any

from partax._pytree.spec_data import NodeNames, leaf_paths_of, walk_paths

_MOST_ALTERNATIVES = 1024


def match_paths(description: tuple[str, Any], names: NodeNames) -> bytes:
    """For each leaf, whether a filter by path matches it. Called by C++."""
    kind, pattern = description
    if kind == "regex":
        return bytes([pattern.search(path) is not None for path in _leaf_paths(names, "/")])
    match, end = glob_regex(pattern).fullmatch, "" if len(names[0]) == 1 else "\0"  # a leaf alone has no segments
    return bytes([match(path) is not None for path in _leaf_paths(names, "\0", end)])


def flat_keys(names: NodeNames, separator: str | None) -> tuple[str, ...]:
    """The path of each leaf; `#2`, `#3` and so on are appended to the later ones of equal paths. Called by C++."""
    keys = _leaf_paths(names, separator)
    used_keys = set(keys)
    if len(used_keys) == len(keys):
        return tuple(keys)
    counts = Counter[str]()  # of each key so far
    for i, key in enumerate(keys):
        counts[key] += 1
        if counts[key] > 1:
            while (name := f"{key}#{counts[key]}") in used_keys:
                counts[key] += 1
            used_keys.add(name)
            keys[i] = name
    return tuple(keys)


def _leaf_paths(names: NodeNames, separator: str | None, end: str = "") -> list[str]:
    paths: list[str] = []
    for node, path in walk_paths(names, ("",), separator):
        if node[0] == "dynamic_leaf":
            paths += leaf_paths_of(node[3], path, separator, end)
    return paths


# What is before the first braces without braces in them, their content, and what is after them.
_BRACES = re.compile(r"((?:\\.|[^\\])*?)\{((?:\\.|[^\\{}])*)\}(.*)", re.DOTALL)
_ALTERNATIVE = re.compile(r"(?:^|,)((?:\\.|[^\\,])*)", re.DOTALL)


@functools.lru_cache(maxsize=256)
def glob_regex(glob: str) -> re.Pattern[str]:
    """The regular expression of the paths that a glob matches, in which a NUL ends each segment, since keys may contain
    slashes. Raises a ValueError if the glob is malformed.
    """
    globs = [glob]
    while _BRACES.fullmatch(globs[0]):  # all have the same other braces
        pieces = [match.groups() for one in globs if (match := _BRACES.fullmatch(one))]
        globs = [start + part + end for start, content, end in pieces for part in _ALTERNATIVE.findall(content)]
        if len(globs) > _MOST_ALTERNATIVES:
            raise ValueError(
                f"by_path: found more than {_MOST_ALTERNATIVES} alternatives in {glob!r}; use `|` or regex="
            )
    tokens = [re.findall(r"\\?.", one, re.DOTALL) for one in globs]  # characters, each with what escapes it
    if any(token in ("{", "}", "\\") for token in tokens[0]):
        raise ValueError(rf"by_path: found a brace or a backslash alone in {glob!r}; write `\{{`, `\}}` or `\\`")
    return re.compile("|".join(map(_path_regex, tokens)))


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
