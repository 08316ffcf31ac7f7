"""Guards the promise that bad input gets a Python exception with a path from what walks a tree, or the right answer:
trees that are too deep or in themselves, keys without an order, functions that raise, change the tree or enter again;
and nothing leaks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import pytest

import partax
from deep_trees import WRAPS, nested, self_containing
from growth import check_steady
from partax import by_path, flat_partition, is_array, tree
from trees import Bag, Cell, Pair, Tray, array, changing_tree, make_model

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose

CALLS: dict[str, Callable[[Any], Any]] = {
    "map": lambda t: tree.map(lambda x: x, t),
    "map_with_path": lambda t: tree.map_with_path(lambda _, x: x, t),
    "leaves": tree.leaves,
    "flatten": tree.flatten,
    "structure": tree.structure,
    "at": lambda t: tree.at(lambda _: 1, t, 2),
    "equal": tree.equal,
    "partition": lambda t: partax.partition(t, is_array),
    "partition by type": lambda t: partax.partition(t, str, dict),
    "partition by path": lambda t: partax.partition(t, by_path("**/x"), by_path(regex="x$")),
    "partition with is_leaf": lambda t: partax.partition(t, int, is_leaf=lambda x: False),
    "filter": lambda t: partax.filter(t, True),
    "flat_partition": lambda t: flat_partition(t, is_array),
    "flat_partition, static": lambda t: flat_partition(t, is_array, rest="static", separator="/"),
}
over_calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@over_calls
@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_a_tree_that_is_too_deep_is_a_recursion_error_with_a_path(wrap: Any, call: Callable[[Any], Any]) -> None:
    with pytest.raises(RecursionError, match=r"`(tree|pytree).*levels\)`: found a tree that is nested more"):
        call(nested(wrap, 3000))


@over_calls
@pytest.mark.parametrize("name", self_containing())
def test_a_tree_that_contains_itself_is_a_recursion_error(name: str, call: Callable[[Any], Any]) -> None:
    with pytest.raises(RecursionError, match="contains itself"):
        call(self_containing()[name])


@pytest.mark.parametrize("name", CALLS)
def test_keys_without_an_order_are_an_error_with_a_path(name: str) -> None:
    unsortable = {"a": [{1: 2, "b": 3}]}
    with pytest.raises(Exception) as by_jax:
        jax.tree.leaves(unsortable)
    kind = by_jax.type if hasattr(tree, name) else TypeError
    with pytest.raises(kind, match=r"\['a'\]\[0\]`: found a dict whose keys cannot be sorted") as caught:
        CALLS[name](unsortable)
    assert isinstance(caught.value.__cause__, TypeError)


class Failing:
    """A node whose functions raise when they are told to."""

    def __init__(self, x: Any, when: str = "") -> None:
        self.x, self.when = x, when


def _flatten_failing(it: Failing) -> Any:
    if it.when == "flatten":
        raise ZeroDivisionError("no children")
    return (it.x,), it.when


def _unflatten_failing(when: str, children: Any) -> Failing:
    if when == "unflatten":
        raise ZeroDivisionError("no node")
    return Failing(*children, when=when)


jax.tree_util.register_pytree_node(Failing, _flatten_failing, _unflatten_failing)


@over_calls
def test_a_node_that_cannot_be_read_has_a_path(call: Callable[[Any], Any]) -> None:
    with pytest.raises(ZeroDivisionError, match="no children") as caught:
        call({"a": [Failing(1, "flatten")]})
    assert "tree['a'][0]`" in caught.value.__notes__[0]


def test_a_node_that_cannot_be_made_raises_its_error() -> None:
    one = [Failing(1, "unflatten")]
    for call in (lambda: tree.map(lambda x: x, one), lambda: tree.unflatten(tree.structure(one), [1])):
        with pytest.raises(ZeroDivisionError, match="no node"):
            call()


def test_is_leaf_that_raises_has_a_path() -> None:
    def is_leaf(x: Any) -> bool:
        return 1 / (x != 1) > 2

    for call in (tree.leaves, tree.structure):
        with pytest.raises(ZeroDivisionError) as caught:
            call({"a": [0, 1]}, is_leaf)
        assert "asking `is_leaf` about `tree['a'][1]`" in caught.value.__notes__[0]


def test_f_may_change_the_tree_and_enter_again() -> None:
    one: Any = {"a": [array(1), 2, 3], "b": [4]}
    leaves = tree.leaves(one)

    def f(x: Any, y: Any) -> Any:
        one["a"].clear()
        one.pop("b", None)
        return x, tree.map(lambda z: (z, y), [x])

    assert tree.map(f, one, one) == {"a": [(x, [(x, x)]) for x in leaves[:3]], "b": [(4, [(4, 4)])]}
    assert one == {"a": []}


def test_predicates_may_change_the_tree() -> None:
    one: Any = [[1, 2, 3], 4]

    def is_leaf(x: Any) -> bool:
        one[0].clear()
        return False

    with contextlib.suppress(RuntimeError):
        tree.leaves(one, is_leaf)
    shrinking = [1, 2, 3]
    with pytest.raises(RuntimeError, match="changed size"):
        tree.leaves(shrinking, lambda x: bool(x == 1 and shrinking.pop()))


@over_calls
def test_a_tree_that_another_thread_changes_gives_an_answer_or_an_error(call: Callable[[Any], Any]) -> None:
    with changing_tree() as one:
        for _ in range(200):
            with contextlib.suppress(RuntimeError, KeyError, ValueError, TypeError):
                call(one)
    assert len(tree.leaves(one)) == 4


def test_a_flatten_function_that_gives_other_children_each_time() -> None:
    class Growing:
        def __init__(self) -> None:
            self.count = 0

    def flatten(it: Growing) -> Any:
        it.count += 1
        return [*range(it.count)], None

    jax.tree_util.register_pytree_node(Growing, flatten, lambda _, children: list(children))
    one = Growing()
    assert [len(tree.leaves(one)) - i for i in range(3)] == [len(tree.leaves(Growing()))] * 3
    with pytest.raises(ValueError, match="rest"):
        tree.map(lambda x, y: 0, [one], [one])


def test_nothing_leaks() -> None:
    one = [make_model(), {"a": Tray(1, Cell(array(1))), "b": Pair(None, Bag(2))}]
    other = tree.map(lambda x: x, one)

    def run(i: int) -> None:
        leaves, structure = tree.flatten(one)
        assert structure == tree.structure(other)
        tree.unflatten(structure, leaves)
        tree.map_with_path(lambda path, x, y: (path, x, y), one, other)
        tree.at(lambda t: t[0].layers[0].weight, one, i)
        tree.at(lambda t: t[1]["a"].top, one, i)
        assert tree.equal(one, other)
        partax.combine(*partax.partition(one, Tray, by_path("0/**"), is_array))
        spec, *parts = flat_partition([one, i], int, is_array, separator="/", rest="static")
        partax.flat_combine(spec, *parts)
        assert hash(spec) == hash(flat_partition([other, i], int, is_array, separator="/", rest="static")[0])
        assert partax.Static([i]) == partax.Static([i])
        with pytest.raises(ValueError):
            partax.partition(one, 3, strict=True)
        for wrong in (lambda: tree.map(lambda x, y: x, one, [1]), lambda: tree.unflatten(structure, [])):
            with contextlib.suppress(ValueError):
                wrong()
        with contextlib.suppress(ZeroDivisionError):
            tree.map(lambda x: 1 / 0, one)

    check_steady(run, calls=400, warm=500)  # until the free lists of tuples are full
