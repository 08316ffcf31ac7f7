"""Guards the promise that each kind of filter takes the leaves that it names, those of `by_path` whose path its pattern
describes, and that among several filters the one that takes a leaf nearest the root gets it, the first of them where
they are equally near; what is no filter, a pattern that is wrong, and with `strict` one that gets no leaf, is a
ValueError that says where and what was found."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import partax
import partition_reference as reference
from partax import by_path, is_array
from partition_reference import all_of, any_of, not_, parts_of, paths_in, taken
from trees import Layer, array, make_model, network

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose


def test_predicates_are_asked_about_leaves_only_and_once() -> None:
    asked: list[Any] = []
    never = lambda x: asked.append(x) is not None
    tree = make_model()
    for filters in ((never,), (Layer, never), (never, Layer), (any_of(never, Layer),), (all_of(not_(never)),)):
        asked.clear()
        partax.partition(tree, *filters)
        leaves = [id(leaf) for leaf in jax.tree.leaves(tree)]
        assert all(leaves.count(id(x)) >= sum(x is other for other in asked) for x in asked)


def test_types_whose_answer_depends_on_the_instance() -> None:
    tree = [jnp.ones(2), jnp.ones((2, 2)), jnp.arange(2), 1.0, np.ones(2, np.float32)]
    assert taken(tree, jaxtyping.Float[jax.Array, " n"]) == ["0"]
    assert taken(tree, jaxtyping.Shaped[jax.Array, " n"]) == ["0", "2"]
    assert taken(tree, (jaxtyping.Float[jax.Array, "a b"], float)) == ["1", "3"]


def test_the_depth_of_combinations() -> None:
    tree = {"a": Layer(array(1))}
    everything = ["a/weight", "a/rate"]
    # at the smallest depth among their members that take it
    assert parts_of(tree, Layer, any_of(is_array, dict)) == [[], everything, []]
    assert parts_of(tree, Layer, all_of(is_array, dict)) == [["a/rate"], ["a/weight"], []]
    assert parts_of(tree, any_of(is_array, Layer), Layer) == [everything, [], []]
    assert parts_of(tree, Layer, any_of(Layer)) == [everything, [], []]
    # a filter that does not take the leaf gives no depth
    assert parts_of(tree, Layer, any_of(all_of(dict, str), is_array)) == [everything, [], []]
    # not_ takes at the leaf, whatever is inside
    assert parts_of(tree, not_(tuple), Layer) == [[], everything, []]
    assert parts_of(tree, not_(not_(dict)), Layer) == [[], everything, []]
    assert parts_of(tree, all_of(), Layer) == [[], everything, []]
    # nested
    assert parts_of(tree, Layer, any_of(False, all_of(True, any_of(str, dict)))) == [[], everything, []]


GARBAGE: list[Any] = [1, 0, 1.0, "layers/*", np.bool_(True), np.array([True]), jnp.array(True), object()]


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda x: type(x).__name__)
def test_what_is_no_filter_is_a_value_error_that_says_what_was_found(garbage: Any) -> None:
    tree = {"a": [1, 2], "b": 3}
    for call in (
        lambda: partax.partition(tree, garbage),
        lambda: partax.partition(tree, is_array, [garbage], {}),
        lambda: partax.filter(tree, garbage),
        lambda: partax.flat_partition(tree, int, garbage),
        lambda: partax.partition({}, garbage),
    ):
        with pytest.raises(ValueError, match="filter"):
            call()
    with pytest.raises(ValueError, match=r"(?s)\['a'\]\[1\].*" + re.escape(type(garbage).__name__)):
        partax.partition(tree, {"a": [True, garbage], "b": True})


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"a": [True], "b": True}, "['a']"),
        ({"a": [True, {"c": True}], "b": True}, "['a'][1]"),
        ({"a": [True, True], "b": [True]}, "['b']"),
        ({"a": [True, None], "b": True}, "['a'][1]"),
    ],
    ids=repr,
)
def test_a_prefix_of_another_structure_is_a_value_error_with_the_path(spec: Any, path: str) -> None:
    tree = {"a": [1, 2], "b": 3}
    for call in (
        lambda: partax.partition(tree, int, spec),
        lambda: partax.flat_partition(tree, spec),
        lambda: partax.partition([tree], [not_(any_of(int, spec))]),
    ):
        with pytest.raises(ValueError, match=re.escape(path)):
            call()


# A tree, filters of which the last takes nothing, and words of the error.
STRICT: dict[str, tuple[Any, list[Any], list[str]]] = {
    "path": (network(), [is_array, by_path("layer/*/weight")], ["filter 1", "layer/*/weight"]),
    "type": (network(), [bytes], ["filter 0", "bytes"]),
    "combination": (network(), [bytes | by_path("x")], ["filter 0", "bytes | by_path('x')"]),
    "many": (network(), [any_of(*map(by_path, map(str, range(100, 199))))], ["100", "..."]),
    "typo": (network(), [by_path("scael")], ["'scale'"]),
    "typo in a large tree": ({"a": [*range(99)], "weight": 1}, [by_path("wieght")], ["'weight'"]),
    "what another one got": ([1, "x"], [int, by_path("0")], [repr(by_path("0"))]),
    "no leaves": ([], [True], ["True"]),
}


@pytest.mark.parametrize("name", STRICT)
def test_strict_names_the_filter_that_gets_nothing_and_the_nearest_paths(name: str) -> None:
    tree, filters, words = STRICT[name]
    for options in (None, {}, {"separator": "/", "rest": "static"}):
        call = partax.partition if options is None else partax.flat_partition
        for more in ([], [str]) if "x" not in tree else ([],):
            with pytest.raises(ValueError) as caught:
                call(tree, *filters, *more, strict=True, **(options or {}))
            assert [word for word in words if word not in str(caught.value)] == []


PATHS: dict[str, tuple[list[str], list[str]]] = {
    # pattern: paths that it takes, paths that it does not
    "layers/*/weight": (["layers/0/weight", "layers/12/weight"], ["layers/weight", "layers/0/a/weight", "x/0/weight"]),
    "layers/0": (["layers/0"], ["layers/0/weight", "layers", "layers/00"]),
    "**": (["a", "a/b", "a/b/c"], []),
    "*": (["a", "0", "layers"], ["a/b"]),
    "**/weight": (["weight", "a/weight", "a/b/weight"], ["a/weights", "weight/a", "a/myweight"]),
    "a/**/z": (["a/z", "a/b/z", "a/b/c/z"], ["a", "z", "az", "b/a/z"]),
    "a*c*e": (["ace", "abcde", "accee"], ["ac", "ae", "acex", "a/c/e"]),
    "{a{b,c/{d,e}}}": (["ab", "ac/d", "ac/e"], ["a", "ac", "ac/f"]),
    "{a/**,b}/w": (["a/w", "a/x/y/w", "b/w"], ["b/x/w", "w"]),
    r"\{a,b\}": (["{a,b}"], ["a", "b"]),
    r"{\{,\},\,}": (["{", "}", ","], ["\\"]),
    r"\a": (["a"], ["\\a"]),
    "\ud800*": (["\ud800", "\ud800x"], ["\udc00"]),
    "\N{GRINNING FACE}?": (["\N{GRINNING FACE}?"], ["\N{GRINNING FACE}"]),
}


def trees_of(paths: list[str]) -> list[Any]:
    """For each path nested dictionaries with one leaf, which is there."""
    return [functools.reduce(lambda leaf, segment: {segment: leaf}, reversed(path.split("/")), path) for path in paths]


@pytest.mark.parametrize("pattern", PATHS)
def test_globs(pattern: str) -> None:
    takes, leaves = PATHS[pattern]
    for path, tree in zip(takes + leaves, trees_of(takes + leaves), strict=True):
        assert (taken(tree, by_path(pattern)) == paths_in(tree)) is (path in takes)
        assert reference.glob_matches(pattern, path.split("/")) is (path in takes)  # the slow model says the same


def test_a_slash_in_a_dict_key_is_no_end_of_a_segment() -> None:
    tree = {"a/b": 1, "a": {"b": 2}, "": {"": 3}, "a/": 4}
    first = lambda pattern: jax.tree.leaves(partax.partition(tree, by_path(pattern))[0])
    assert first("a/b") == [2] and first(r"a\/b") == first(r"{a,x}\/{b,c}") == [1] and first("/") == [3]
    assert first("*") == [4, 1] and first("*/*") == [3, 2]  # in jax's order of the keys
    assert taken(tree, by_path(regex="^a/b$")) == ["a/b", "a/b"]


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


@pytest.mark.parametrize("pattern", ["{a", "a}{b", "a{b,{c}", "a\\", "{a\\}"])
def test_bad_globs_are_value_errors_at_once(pattern: str) -> None:
    with pytest.raises(ValueError, match=re.escape(pattern) if "\\" not in pattern else None):
        by_path(pattern)
    with pytest.raises(ValueError):
        reference.glob_matches(pattern, ["a"])


def test_regular_expressions_search_the_whole_path() -> None:
    tree = {"layers": [{"weight": 1, "bias": 2}, 3], "mybias": 4}
    expected = {
        r"layers/\d+/w": ["layers/0/weight"],
        "bias": ["layers/0/bias", "mybias"],
        "^mybias$|/1$": ["layers/1", "mybias"],
    }
    for pattern, paths in expected.items():
        assert taken(tree, by_path(regex=pattern)) == taken(tree, by_path(regex=re.compile(pattern))) == paths


def test_by_path_takes_one_pattern() -> None:
    for arguments in ((), ("a", "b"), (3,), (re.compile("a"),)):
        with pytest.raises(TypeError):
            by_path(*arguments)
    for regex in (3, re.compile(b"a"), "(", "[a"):
        with pytest.raises((TypeError, ValueError)):
            by_path(regex=regex)


def test_filters_are_equal_if_their_parts_are() -> None:
    assert by_path("a/*") | int == by_path("a/*") | int != int | by_path("a/*")
    assert len({~by_path("a"), ~by_path("a"), by_path("a"), by_path(regex="a")}) == 3
