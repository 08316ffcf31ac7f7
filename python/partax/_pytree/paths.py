"""Paths of the leaves of a tree as strings, and globs and regular expressions that match leaves by their path.

The native stages pass the names in a tree as rows in pre-order. The row of a node is (how its children are named, their
names, their number, whether all are leaves). Unless all are leaves, the rows of the children follow: an integer is the
number of consecutive leaves, and None ends the children.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from jax.tree_util import keystr

# How the children of a node are named; `_ENTRIES` are keys of jax or indices.
_INDICES, _FIELDS, _KEYS, _ENTRIES = range(4)

_Row = tuple[int, Any, int, int] | int | None
_Rows = tuple[_Row, ...]

_MOST_ALTERNATIVES = 1024
_MOST_RESULTS = 1 << 12  # in each cache of a glob

_Part = re.Pattern[str] | str | None
"""A segment of a glob: a literal or a pattern; None at the end of the glob."""

_Matches = Callable[[str], re.Match[str] | None]
_ANY_DEPTH, _ANY, _END = re.compile(r"\*\*"), re.compile(".*", re.DOTALL), None


def taken_by_path(description: tuple[str, Any], rows: _Rows) -> bytes:
    """For each leaf, whether a filter by path matches it. Called by the native stages."""
    kind, pattern = description
    if kind == "glob":
        return glob_of(pattern).match_leaves(rows)
    return bytes([pattern.search(path) is not None for path in path_texts(rows, "/")])


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
    if len(rows) == 1 and isinstance(rows[0], int):
        return [""]  # the tree is a leaf
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


class _Glob:
    """A glob as an automaton over segments, whose states are sets of positions in its alternatives, as bits."""

    def __init__(self, alternatives: Iterable[list[_Part]]) -> None:
        self._parts: list[_Part] = []
        self._start = self._ends = 0
        for parts in alternatives:
            self._start |= 1 << len(self._parts)
            self._parts += [*parts, _END]
            self._ends |= 1 << len(self._parts) - 1
        self._start = self._closed(self._start)
        self._steps: dict[tuple[int, str | None], int] = {}
        self._nexts: dict[int, tuple[frozenset[str], int | None]] = {}
        self._lasts: dict[int, tuple[bool, frozenset[str], _Matches | None]] = {}
        self._of_fields: dict[tuple[int, tuple[str, ...]], bytes] = {}

    def match_leaves(self, rows: _Rows) -> bytes:
        """For each leaf, whether the glob matches it."""
        mask = bytearray()
        levels: list[Iterator[int]] = []
        states = iter((self._start,))  # of the remaining children of the current node
        for row in rows:
            if row is None:
                states = levels.pop()
            elif isinstance(row, int):
                mask += bytes([state & self._ends != 0 for state in itertools.islice(states, row)])
            else:
                kind, names, count, is_flat = row
                state = next(states)
                if is_flat:
                    mask += self._match_children(state, kind, names, count)
                else:
                    levels.append(states)
                    states = iter(self._states_of(state, kind, names, count))
        return bytes(mask)

    def _match_children(self, state: int, kind: int, names: Any, count: int) -> bytes:
        """For each child of a node whose children are leaves, whether the glob matches it."""
        if state == 0:
            return bytes(count)
        if kind == _FIELDS and (mask := self._of_fields.get((state, names))) is not None:
            return mask
        matches_all, literals, match = self._last(state)
        if matches_all:
            return b"\1" * count
        if kind == _INDICES and match is None:
            indices = bytearray(count)
            for text in literals:
                if _is_index(text, count):
                    indices[int(text)] = 1
            return bytes(indices)
        segments = _segments(kind, names, count)
        if match is None:
            mask = bytes(map(literals.__contains__, segments))
        else:
            mask = bytes([text in literals or match(text) is not None for text in segments])
        if kind == _FIELDS:
            _keep(self._of_fields, (state, names), mask)
        return mask

    def _last(self, state: int) -> tuple[bool, frozenset[str], _Matches | None]:
        """The segments that lead from a state to an end: whether all do, the literals, and a match of patterns."""
        if state not in self._lasts:
            before_end = [i for i in _positions(state & ~self._ends) if self._closed(2 << i) & self._ends]
            parts = [self._parts[i] for i in before_end]
            patterns = [part.pattern for part in parts if isinstance(part, re.Pattern)]
            match = re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.DOTALL).fullmatch
            literals = frozenset(part for part in parts if isinstance(part, str))
            matches_all = any(part is _ANY or part is _ANY_DEPTH for part in parts)
            _keep(self._lasts, state, (matches_all, literals, match if patterns else None))
        return self._lasts[state]

    def _states_of(self, state: int, kind: int, names: Any, count: int) -> Iterable[int]:
        if state not in self._nexts:
            parts = [self._parts[position] for position in _positions(state & ~self._ends)]
            literals = frozenset(part for part in parts if isinstance(part, str))
            is_plain = all(isinstance(part, str) or part is _ANY or part is _ANY_DEPTH for part in parts)
            _keep(self._nexts, state, (literals, self._step(state, None) if is_plain else None))
        literals, after = self._nexts[state]  # after any segment except the literals; None if it depends on patterns
        if after is None:
            return [self._step(state, segment) for segment in _segments(kind, names, count)]
        if not literals:
            return itertools.repeat(after, count)
        segments = _segments(kind, names, count)
        return [self._step(state, segment) if segment in literals else after for segment in segments]

    def _step(self, state: int, segment: str | None) -> int:
        after = self._steps.get((state, segment))
        if after is None:
            after = 0
            for position in _positions(state):
                part = self._parts[position]
                if part is _ANY_DEPTH:
                    after |= 1 << position
                elif part is _ANY or (segment is not None and _matches(part, segment)):
                    after |= 2 << position
            after = self._closed(after)
            _keep(self._steps, (state, segment), after)
        return after

    def _closed(self, state: int) -> int:
        """Add the positions after each `**`, since it also matches zero segments."""
        for position in _positions(state):
            while self._parts[position] is _ANY_DEPTH:
                position += 1
                state |= 1 << position
        return state


def _matches(part: _Part, segment: str) -> bool:
    return part.fullmatch(segment) is not None if isinstance(part, re.Pattern) else part == segment


def _is_index(text: str, count: int) -> bool:
    return text.isascii() and text.isdecimal() and str(int(text)) == text and int(text) < count


def _keep(results: dict[Any, Any], key: Any, result: Any) -> None:
    if len(results) >= _MOST_RESULTS:
        results.clear()
    results[key] = result


def _positions(state: int) -> Iterator[int]:
    while state:
        position = state & -state
        yield position.bit_length() - 1
        state ^= position


@functools.lru_cache(maxsize=256)
def glob_of(glob: str) -> _Glob:
    """The automaton of a glob. Raises a ValueError if the glob is malformed."""
    tokens = re.findall(r"\\?.", glob, re.DOTALL)  # characters, each with the backslash that escapes it
    if tokens and tokens[-1] == "\\":
        raise ValueError(f"by_path: found a backslash at the end of {glob!r}, expected a character after it")
    return _Glob(map(_split, _expand(tokens, glob)))


def _expand(tokens: list[str], glob: str) -> list[list[str]]:
    """All globs without braces that a glob with braces matches."""
    # For each open brace: the prefixes before it, and its alternatives so far. `current` is the innermost alternative.
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
            if len(outer) * len(inner) > _MOST_ALTERNATIVES:
                raise ValueError(
                    f"by_path: found more than {_MOST_ALTERNATIVES} alternatives in {glob!r}, expected fewer; "
                    "join several filters by `|`, or use regex="
                )
            current = [prefix + suffix for prefix in outer for suffix in inner]
        else:
            for alternative in current:
                alternative.append(token)
    if before:
        raise ValueError(rf"by_path: found a `{{` without its `}}` in {glob!r}; write `\{{` for the character")
    return current


def _split(tokens: list[str]) -> list[_Part]:
    """The segments of one alternative; the empty glob matches the root, which has no segments."""
    segments: list[_Part] = []
    pieces = [""]  # the strings between the stars of a segment
    for token in [*tokens, "/"] if tokens else ():
        if token == "/":
            segments.append(_segment(pieces))
            pieces = [""]
        elif token == "*":
            pieces.append("")
        else:
            pieces[-1] += token[-1]
    return segments


def _segment(pieces: list[str]) -> _Part:
    if not any(pieces) and len(pieces) in (2, 3):
        return _ANY if len(pieces) == 2 else _ANY_DEPTH
    if len(pieces) == 1:
        return pieces[0]
    first, *middle, last = map(re.escape, pieces)
    # Atomic groups match each piece at its first position, since backtracking over many stars takes exponential time.
    return re.compile("".join([first, *(f"(?>.*?{piece})" for piece in middle), ".*", last]), re.DOTALL)
