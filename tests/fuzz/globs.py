"""A pattern and paths from a fuzzer's bytes: which leaves by_path takes, and which the model does."""

from typing import Any

import partax
import partition_reference as reference
from fuzz.source import Source, outcome

PATTERN = "ab*/{},\\0.\u00e9*/{,}**1"
SEGMENT = "ab01.*/\u00e9"
# The model tries every way to divide the text between the stars.
MAX_CHOICES = 64


def check(data: bytes) -> None:
    """Fails where partax and the model disagree."""
    source = Source(data)
    source.byte()  # which chose between globs and regular expressions
    tree = _tree(source, 0)
    pattern = source.text(PATTERN, 40)
    places = reference.places(tree)
    made = outcome(lambda: partax.by_path(pattern), (ValueError,))
    parsed = outcome(lambda: reference.alternatives(pattern), (ValueError,))
    if isinstance(parsed, ValueError):
        assert isinstance(made, ValueError), pattern
        return
    choices = len(parsed)
    if isinstance(made, ValueError):
        assert choices > 1024, (pattern, made)
        return
    result = reference.paths_in(partax.filter(tree, made))
    if choices > MAX_CHOICES or pattern.count("*") > 5:
        return
    expected = [reference.glob_matches(pattern, place.segments) for place in places]
    for part, is_taken in zip(partax.partition(tree, made), (True, False), strict=True):
        wanted = [place.steps for place, takes in zip(places, expected, strict=True) if takes is is_taken]
        assert [place.steps for place in reference.places(part)] == wanted, pattern
    _, taken, others = partax.flat_partition(tree, made, separator="/")
    assert (len(taken), len(others)) == (sum(expected), len(expected) - sum(expected))
    assert len(result) == sum(expected), pattern


def _tree(source: Source, depth: int) -> Any:
    """Dictionaries and sequences, with strings as leaves, so that none is equal to None."""
    match source.below(6) if depth < 5 else 0:
        case 0 | 1:
            return "leaf"
        case 2:
            return [_tree(source, depth + 1) for _ in range(source.below(13 if depth < 2 else 3))]
        case 3:
            return tuple(_tree(source, depth + 1) for _ in range(source.below(3)))
        case _:
            return {source.text(SEGMENT, 6): _tree(source, depth + 1) for _ in range(source.below(4))}
