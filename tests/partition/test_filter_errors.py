"""Guards the promise that what is no filter is a ValueError that says where and what was found, and that with `strict`
a filter that gets no leaf is one that names the filter and the nearest paths."""

from __future__ import annotations

import re
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import partax
import partition_reference as reference
from partax import any_of, by_path, is_array, not_
from partition_reference import parts_of, paths_in
from test_filters import network

# --- what a filter cannot be


GARBAGE: list[Any] = [1, 0, 1.0, "layers/*", b"x", np.bool_(True), np.array([True]), jnp.array(True), object(), 2j]


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda x: type(x).__name__)
def test_what_is_no_filter_is_a_value_error_that_says_what_was_found(garbage: Any) -> None:
    tree = {"a": [1, 2], "b": 3}
    calls = [
        lambda: partax.partition(tree, garbage),
        lambda: partax.partition(tree, garbage, is_array),
        lambda: partax.partition(tree, is_array, [garbage], {}),
        lambda: partax.partition(tree, filter_spec=garbage),
        lambda: partax.filter(tree, garbage),
        lambda: partax.flat_partition(tree, int, garbage),
        lambda: partax.partition({}, garbage),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="filter"):
            call()
    with pytest.raises(ValueError, match=r"(?s)\['a'\]\[1\].*" + re.escape(type(garbage).__name__)):
        partax.partition(tree, {"a": [True, garbage], "b": True})


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"a": [True], "b": True}, "['a']"),
        ({"a": (True, True), "b": True}, "['a']"),
        ({"a": [True, {"c": True}], "b": True}, "['a'][1]"),
        ({"a": [True, True], "b": [True]}, "['b']"),
        ({"a": [True, None], "b": True}, "['a'][1]"),
    ],
    ids=repr,
)
def test_a_prefix_of_another_structure_is_a_value_error_with_the_path(spec: Any, path: str) -> None:
    tree = {"a": [1, 2], "b": 3}
    for call in (
        lambda: partax.partition(tree, spec),
        lambda: partax.partition(tree, int, spec),
        lambda: partax.flat_partition(tree, spec),
        lambda: partax.partition(tree, any_of(int, spec)),
        lambda: partax.partition([tree], [not_(spec)]),
    ):
        with pytest.raises(ValueError, match=re.escape(path)):
            call()


# --- strict


def test_without_strict_a_filter_may_take_nothing() -> None:
    tree = network()
    assert parts_of(tree, by_path("layer/*/weight"), bytes, False) == [[], [], [], paths_in(tree)]


def test_strict_is_content_when_every_filter_gets_a_leaf() -> None:
    tree = network()
    filters = (eqx.nn.Linear, by_path("layers/*/weight"), str)
    for a, b in zip(partax.partition(tree, *filters, strict=True), partax.partition(tree, *filters), strict=True):
        reference.assert_identical(a, b)
    partax.flat_partition(tree, *filters, strict=True)
    partax.partition(tree, strict=True)


def calls_of(tree: Any, *filters: Any) -> list[Any]:
    return [
        lambda: partax.partition(tree, *filters, strict=True),
        lambda: partax.flat_partition(tree, *filters, strict=True),
        lambda: partax.flat_partition(tree, *filters, strict=True, separator="/", rest="static"),
    ]


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: by_path("layer/*/weight"), ["layer/*/weight"]),
        (lambda: bytes, ["bytes"]),
        (lambda: False, ["False"]),
        (lambda: any_of(bytes, by_path("x")), ["any_of", "bytes", "x"]),
    ],
    ids=["path", "type", "bool", "combination"],
)
def test_strict_names_the_filter_that_takes_nothing(make: Any, words: list[str], position: int) -> None:
    filters: list[Any] = [is_array, str]
    filters.insert(position, make())
    for call in calls_of(network(), *filters):
        with pytest.raises(ValueError) as caught:
            call()
        message = str(caught.value)
        assert f"filter {position}" in message
        assert all(word in message for word in words)


def test_strict_names_the_nearest_paths_of_a_typo() -> None:
    tree = network()
    for call in calls_of(tree, by_path("layers/0/wieght")):
        with pytest.raises(ValueError, match="layers/0/weight"):
            call()
    for call in calls_of(tree, by_path("haed/bias")):
        with pytest.raises(ValueError, match="head/bias"):
            call()


def test_strict_counts_leaves_that_a_filter_gets_not_those_that_it_would_take() -> None:
    for call in calls_of([1, "x"], int, by_path("0"), str):
        with pytest.raises(ValueError, match=re.escape(repr(by_path("0")))):
            call()
    for call in calls_of([], True):
        with pytest.raises(ValueError, match="True"):
            call()


def test_strict_survives_a_filter_whose_repr_raises() -> None:
    class Shy:
        def __call__(self, x: Any) -> bool:
            return False

        def __repr__(self) -> str:
            raise ZeroDivisionError("no repr")

    for call in calls_of([1], Shy()):
        with pytest.raises((ValueError, ZeroDivisionError)):
            call()
