"""Guards that a class registered with Python functions is what jax makes of it, in as few calls of these functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import partax
from trees import Nameless, array


class Items:
    """Children that are only a sequence, as Python's old protocol has it."""

    def __init__(self, *items: Any):
        self.items = items

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def generated(*items: Any) -> Iterator[Any]:
    yield from items


def pair_class(flattened: Callable[[Any], Any]) -> type:
    """A class of two attributes that is flattened so, and logs the functions that are called."""

    class Pair:
        log: list[str]

        def __init__(self, a: Any, b: Any):
            self.a, self.b = a, b

    def flatten(pair: Any) -> Any:
        Pair.log.append("flatten")
        return flattened(pair)

    def unflatten(aux: Any, children: Any) -> Any:
        assert type(children) is tuple
        Pair.log.append("unflatten")
        return Pair(*children)

    Pair.log = []
    jax.tree_util.register_pytree_node(Pair, flatten, unflatten)
    return Pair


class PairTuple(tuple[Any, ...]):
    pass


FLATTENED: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda it: ((it.a, it.b), None),
    "list": lambda it: ([it.a, it.b], "aux"),
    "iterator": lambda it: (generated(it.a, it.b), 3),
    "values": lambda it: ({1: it.a, 2: it.b}.values(), (1, 2)),
    "sequence": lambda it: (Items(it.a, it.b), None),
    "a subclass of tuple": lambda it: PairTuple(((it.a, it.b), None)),
}


@pytest.mark.parametrize("form", FLATTENED)
def test_children_come_in_any_form_and_each_function_is_called_once(form: str) -> None:
    cls: Any = pair_class(FLATTENED[form])

    def body(pair: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf + 1, pair)

    ours = partax.filter_jit(body)
    pair = cls(array(2), {"b": array(3), "a": array(1)})
    ours(pair)
    expected = jax.jit(body)(pair)
    cls.log.clear()
    found = ours(pair)
    assert cls.log == ["flatten", "unflatten"]
    assert type(found) is cls
    np.testing.assert_array_equal(found.a, expected.a)
    np.testing.assert_array_equal(found.b["a"], expected.b["a"])
    arrays, rest = partax.partition(pair, partax.is_array)
    np.testing.assert_array_equal(partax.combine(arrays, rest).a, pair.a)


@pytest.mark.parametrize("count", [0, 1])
def test_what_telling_the_keys_of_children_raises_goes_no_further(count: int) -> None:
    ours = partax.filter_jit(lambda tree: jax.tree.map(lambda x: x + 1, tree))
    tree = [array(2), Nameless(count * (array(3),))]

    def trace(*_: Any) -> None:  # as a debugger's: a call of C fails where an error was left behind
        len(())

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        first, second = ours(tree)
        structure = partax.tree.structure(tree)
    finally:
        sys.settrace(before)
    np.testing.assert_array_equal(first, array(2) + 1)
    assert len(second.children) == count and structure.num_leaves == 1 + count
