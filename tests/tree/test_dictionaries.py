"""Guards that dictionaries hit by the rules of jax whatever order their keys were inserted in: the values come in the
order of the keys, an OrderedDict's order is part of its structure, and keys that run user code change nothing under a
walk."""

from __future__ import annotations

import itertools
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import partax
from partax import _core
from trees import Layer, array

Items = list[tuple[Any, Any]]


def counted() -> tuple[Callable[..., Any], list[Any]]:
    """Gives each value back by its key, and logs the keys as the trace sees them."""
    traces: list[Any] = []

    def body(tree: Any) -> Any:
        traces.append(list(tree))
        return tuple((key, tree[key] + 1) for key in tree)

    return body, traces


def default(items: Items) -> Any:
    return defaultdict(list, items)


FAMILIES: dict[str, Callable[[Items], Any]] = {"dict": dict, "defaultdict": default, "OrderedDict": OrderedDict}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("keys", [("a", "c", "b"), (10**9, 3, -(10**9)), ((1, "x"), (0, "y"), (1, "w"))], ids=str)
def test_every_order_of_insertion_hits_and_traces_as_in_jax(family: str, keys: tuple[Any, ...]) -> None:
    make = FAMILIES[family]
    body, traces = counted()
    ours = partax.filter_jit(body)
    jax_body, jax_traces = counted()
    jitted = jax.jit(lambda tree: [value for _, value in jax_body(tree)])
    values = dict(zip(keys, (array(2), array(2, start=5), array(2, start=9)), strict=True))
    for order in 2 * list(itertools.permutations(keys)):
        tree = make([(key, values[key]) for key in order])
        expected = jitted(tree)
        found = ours(tree)
        assert [key for key, _ in found] == list(jax.tree.map(lambda x: x, tree))
        for (key, value), other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(value, values[key] + 1)
            np.testing.assert_array_equal(value, other)
    assert traces == jax_traces


def test_an_ordered_dict_that_was_reordered_is_another_structure() -> None:
    ours = partax.filter_jit(lambda tree: tuple(tree))
    tree = OrderedDict(a=array(1), b=array(2))
    assert ours(tree) == ("a", "b")
    tree.move_to_end("a")  # its dictionary keeps the old order
    assert ours(tree) == ("b", "a")
    leaves, spec = _core.flatten(tree)
    assert spec.match(tree) == leaves
    tree.move_to_end("a", last=False)
    assert spec.match(tree) is None
    assert ours(tree) == ("a", "b")


def test_keys_are_told_apart_by_type_and_an_equal_one_is_this_call_s_own() -> None:
    spec = _core.flatten({1: array(1)})[1]
    assert spec.match({True: array(1)}) is None
    assert spec.match({1.0: array(1)}) is None
    ours = partax.filter_jit(lambda tree: list(tree))
    ours({"b": array(1), "a": array(1)})
    keys = ["".join(["a", "1"]), "".join(["b", "1"])]
    first = ours(dict.fromkeys(keys, array(1)))
    assert first == keys
    again = ["".join(["b", "1"]), "".join(["a", "1"])]
    found = ours(dict.fromkeys(again, array(1)))
    assert found[0] is again[1] and found[1] is again[0]
    found = ours(dict.fromkeys(again, array(1)))
    assert found[0] is again[1] and found[1] is again[0]


def test_the_factory_of_a_defaultdict_is_static() -> None:
    traces: list[Any] = []

    @partax.filter_jit
    def f(tree: Any) -> Any:
        traces.append(tree.default_factory)
        return tree["a"]

    for factory in (list, list, dict, None, None, list):
        f(defaultdict(factory, a=array(1)))
    assert traces == [list, dict, None]


class Key:
    """Does something when it is compared; the hash is that of `like`."""

    def __init__(self, like: Any, act: Callable[[], object] = lambda: None):
        self.like = like
        self.act = act

    def __hash__(self) -> int:
        return hash(self.like)

    def __eq__(self, other: object) -> bool:
        self.act()
        return isinstance(other, Key) and self.like == other.like

    def __lt__(self, other: Any) -> bool:
        self.act()
        return bool(self.like < other.like)


def once_at_a_time(act: Callable[[], object]) -> Callable[[], None]:
    """It may be what `act` does that has it called again."""
    busy: list[bool] = []

    def guarded() -> None:
        if not busy:
            busy.append(True)
            try:
                act()
            finally:
                busy.clear()

    return guarded


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("nested", [False, True])
def test_keys_that_empty_the_dictionary_while_they_are_compared(family: str, nested: bool) -> None:
    def value(i: int) -> Any:
        return [array(3, start=i)] if nested else array(3, start=i)

    def tree_of(act: Callable[[], object]) -> Any:
        return FAMILIES[family]([(Key(name, act), value(i)) for i, name in enumerate("cab")])

    spec = _core.flatten(tree_of(lambda: None))[1]
    assert len(spec.match(tree_of(lambda: None)) or ()) == 3
    for when in range(12):
        count = itertools.count()
        trees: list[Any] = []
        trees.append(tree_of(lambda when=when, count=count, trees=trees: next(count) == when and trees[0].clear()))
        found = spec.match(trees[0])
        assert found is None or len(found) == 3
        for leaf in found or ():
            assert leaf.shape == (3,)


@pytest.mark.parametrize("wrapper", [False, True])
def test_a_key_in_an_instance_that_pops_a_field_when_compared(wrapper: bool) -> None:
    """A key of the user's with the hash of a field stands in the dictionary where that is looked up."""
    ours = partax.filter_jit(lambda model, x: x + model.weight.sum())
    for name in ("weight", "bias", "__module__", "__doc__"):
        for ours_first in (False, True):
            layer = Layer(array(2, 2), array(2))
            state: Any = layer.__dict__
            key = Key(name, once_at_a_time(lambda state=state: state.pop("weight", None)))
            fields = dict(state)
            state.clear()
            state.update({key: 1, **fields} if ours_first else {**fields, key: 1})
            if wrapper:
                try:
                    ours(layer, array(2))
                except Exception as error:  # whatever the module still has
                    assert not isinstance(error, SystemError)
            else:
                leaves, spec = _core.flatten(layer)
                assert len(leaves) <= 2
                spec.match(layer)
