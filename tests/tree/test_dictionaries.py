"""Guards that dictionaries hit by the rules of jax whatever order their keys were inserted in: the values come in the
order of the keys, an OrderedDict's order is part of its structure, and keys that run user code change nothing under a
walk."""

import itertools
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import partax
from trees import array

Items = list[tuple[Any, Any]]
FAMILIES: dict[str, Callable[[Items], Any]] = {
    "dict": dict,
    "defaultdict": lambda items: defaultdict(list, items),
    "OrderedDict": OrderedDict,
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("keys", [("a", "c", "b"), (10**9, 3, -(10**9)), ((1, "x"), (0, "y"), (1, "w"))], ids=str)
def test_every_order_of_insertion_hits_and_traces_as_in_jax(family: str, keys: tuple[Any, ...]) -> None:
    ours_saw: list[Any] = []  # the keys as a trace sees them
    jax_saw: list[Any] = []
    ours = partax.filter_jit(lambda tree: (ours_saw.append(list(tree)), [(key, tree[key] + 1) for key in tree])[1])
    jitted = jax.jit(lambda tree: (jax_saw.append(list(tree)), [tree[key] + 1 for key in tree])[1])
    values = dict(zip(keys, (array(2), array(2, start=5), array(2, start=9)), strict=True))
    for order in 2 * list(itertools.permutations(keys)):
        tree = FAMILIES[family]([(key, values[key]) for key in order])
        found, expected = ours(tree), jitted(tree)
        assert [key for key, _ in found] == list(jax.tree.map(lambda x: x, tree))
        for (key, value), other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(value, values[key] + 1)
            np.testing.assert_array_equal(value, other)
    assert ours_saw == jax_saw


def test_an_ordered_dict_that_was_reordered_is_another_structure() -> None:
    ours = partax.filter_jit(lambda tree: tuple(tree))
    tree = OrderedDict(a=array(1), b=array(2))
    assert ours(tree) == ("a", "b")
    tree.move_to_end("a")  # its dictionary keeps the old order
    assert ours(tree) == ("b", "a")
    tree.move_to_end("a", last=False)
    assert ours(tree) == ("a", "b")


def test_the_factory_of_a_defaultdict_is_static() -> None:
    traces: list[Any] = []
    f = partax.filter_jit(lambda tree: (traces.append(tree.default_factory), tree["a"])[1])
    for factory in (list, list, dict, None, None, list):
        f(defaultdict(factory, a=array(1)))
    assert traces == [list, dict, None]
