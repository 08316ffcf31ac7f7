"""Guards the promise that `by_path` takes the leaves whose path its glob or regular expression describes, of any tree,
and that a pattern that is wrong is refused at once."""

from __future__ import annotations

import re
from typing import Any

import jax
import pytest

import partax
import partition_reference as reference
from partax import by_path
from partition_reference import paths_in, taken

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose

# --- paths


PATHS: dict[str, tuple[list[str], list[str]]] = {
    # pattern: paths that it takes, paths that it does not
    "layers/*/weight": (["layers/0/weight", "layers/12/weight"], ["layers/weight", "layers/0/a/weight", "x/0/weight"]),
    "layers/0": (["layers/0"], ["layers/0/weight", "layers", "layers/00"]),
    "**": (["a", "a/b", "a/b/c"], []),
    "*": (["a", "0", "layers"], ["a/b"]),
    "**/weight": (["weight", "a/weight", "a/b/weight"], ["a/weights", "weight/a", "a/myweight"]),
    "a/**/z": (["a/z", "a/b/z", "a/b/c/z"], ["a", "z", "az", "b/a/z"]),
    "a*c*e": (["ace", "abcde", "accee"], ["ac", "ae", "acex", "a/c/e"]),
    "a**c": (["ac", "abc"], ["a/c", "a/b/c"]),  # no whole segment: like one star
    "{a{b,c/{d,e}}}": (["ab", "ac/d", "ac/e"], ["a", "ac", "ac/f"]),
    "{a/**,b}/w": (["a/w", "a/x/y/w", "b/w"], ["b/x/w", "w"]),
    r"\{a,b\}": (["{a,b}"], ["a", "b"]),
    r"{\{,\},\,}": (["{", "}", ","], ["\\"]),
    r"\a": (["a"], ["\\a"]),
    "é*": (["é", "éa"], ["e", "e\u0301"]),
    "\ud800*": (["\ud800", "\ud800x"], ["\udc00"]),
    "\N{GRINNING FACE}?": (["\N{GRINNING FACE}?"], ["\N{GRINNING FACE}"]),
}


def tree_of(paths: list[str]) -> Any:
    """Nested dictionaries with a leaf at each path; trees of paths that exclude each other are in a list."""
    trees: list[dict[str, Any]] = []
    for path in paths:
        leaf: Any = path
        for segment in reversed(path.split("/")):
            leaf = {segment: leaf}
        trees.append(leaf)
    return trees


@pytest.mark.parametrize("pattern", PATHS)
def test_globs(pattern: str) -> None:
    takes, leaves = PATHS[pattern]
    for tree in tree_of(takes):
        assert taken(tree, by_path(pattern)) == paths_in(tree)
    for tree in tree_of(leaves):
        assert taken(tree, by_path(pattern)) == []
    for path in takes + leaves:  # the slow model says the same
        assert reference.glob_matches(pattern, path.split("/")) is (path in takes)


def test_a_slash_in_a_dict_key_is_no_end_of_a_segment() -> None:
    tree = {"a/b": 1, "a": {"b": 2}, "": {"": 3}, "a/": 4}
    first = lambda pattern: jax.tree.leaves(partax.partition(tree, by_path(pattern))[0])
    assert first("a/b") == [2]
    assert first(r"a\/b") == [1]
    assert first("*") == [4, 1]  # in jax's order of the keys
    assert first("*/*") == [3, 2]
    assert first(r"a\/") == [4]
    assert first("/") == [3]
    assert first(r"{a,x}\/{b,c}") == [1]
    assert sorted(first("a*")) == [1, 4]


def test_the_root_leaf_has_no_segments() -> None:
    for pattern, expected in {"": [""], "**": [""], "**/**": [""], "*": [], "a": []}.items():
        assert taken(3, by_path(pattern)) == expected
    assert taken(3, by_path(regex="^$")) == [""]


def test_globs_of_many_stars_do_not_take_for_ever() -> None:
    tree = {"a" * 60: 1}
    for _ in range(30):
        tree = {"a": tree}
    assert taken(tree, by_path("**/" + "*a" * 30 + "b")) == []
    assert taken(tree, by_path("**/a/" * 12 + "b")) == []
    assert taken(tree, by_path("**/" * 20 + "*a" * 30)) == paths_in(tree)
    with pytest.raises(ValueError, match="1024 alternatives"):
        by_path("{a,b}" * 40)


REGEXES: dict[str, tuple[list[str], list[str]]] = {
    r"layers/\d+/weight": (["layers/0/weight", "x/layers/12/weight", "layers/1/weights"], ["layers/a/weight"]),
    r"^layers/\d+/weight$": (["layers/0/weight"], ["x/layers/12/weight", "layers/1/weights"]),
    "bias": (["bias", "a/bias", "mybias/a"], ["bia/s"]),
    "": (["a", "a/b"], []),
    "^a|b$": (["a", "a/x", "x/b"], ["x/a", "b/x"]),
    "(?i)LAYER": (["layers/0"], ["lay/er"]),
}


@pytest.mark.parametrize("pattern", REGEXES)
@pytest.mark.parametrize("make", [str, re.compile], ids=["str", "compiled"])
def test_regular_expressions_search_the_whole_path(pattern: str, make: Any) -> None:
    takes, leaves = REGEXES[pattern]
    for tree in tree_of(takes):
        assert taken(tree, by_path(regex=make(pattern))) == paths_in(tree)
    for tree in tree_of(leaves):
        assert taken(tree, by_path(regex=make(pattern))) == []


def test_a_regular_expression_sees_a_slash_in_a_key_as_any_other() -> None:
    assert taken({"a/b": 1, "a": {"b": 2, "c": 3}}, by_path(regex="^a/b$")) == ["a/b", "a/b"]


@pytest.mark.parametrize("pattern", ["{", "{a", "}", "a}{b", "a{b,{c}", "a\\", "{a\\}", "layers/{0,1"])
def test_bad_globs_are_value_errors_at_once(pattern: str) -> None:
    with pytest.raises(ValueError, match=re.escape(pattern) if "\\" not in pattern else None):
        by_path(pattern)
    with pytest.raises(ValueError):
        reference.glob_matches(pattern, ["a"])


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "(?P<n>a)(?P<n>b)"])
def test_bad_regular_expressions_are_value_errors_at_once(pattern: str) -> None:
    with pytest.raises(ValueError):
        by_path(regex=pattern)


def test_by_path_takes_one_pattern() -> None:
    for arguments in ((), ("a", "b"), (3,), (None,), (b"a",), (re.compile("a"),)):
        with pytest.raises((TypeError, ValueError)):
            by_path(*arguments)
    for regex in (3, b"a", re.compile(b"a")):
        with pytest.raises((TypeError, ValueError)):
            by_path(regex=regex)
    with pytest.raises((TypeError, ValueError)):
        by_path("a", regex="b")
