"""Guards the promise that bad input gets a Python exception with a path from what walks a tree, or the right answer:
trees that are too deep or in themselves, keys without an order or a text, filters and functions that raise, change the
tree or enter again; nothing leaks, and nothing overflows the C stack."""

import contextlib
import functools
import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any

import jax
import pytest

import partax
from deep_trees import WRAPS, nested, self_containing
from growth import check_steady
from partax import _core, by_path, filter_jit, flat_combine, flat_partition, is_array, tree
from trees import Bag, Cell, Pair, Tray, array, make_model

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose

CALLS: dict[str, Callable[[Any], Any]] = {
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
def test_a_tree_that_is_too_deep_or_in_itself_is_a_recursion_error(call: Callable[[Any], Any]) -> None:
    for wrap in WRAPS.values():
        with pytest.raises(RecursionError, match=r"`(tree|pytree).*levels\)`: found a tree that is nested more"):
            call(nested(wrap, 3000))
    for endless in self_containing().values():
        with pytest.raises(RecursionError, match="contains itself"):
            call(endless)


@over_calls
def test_keys_without_an_order_are_an_error_with_a_path(call: Callable[[Any], Any]) -> None:
    unsortable = {"a": [{1: 2, "b": 3}]}
    with pytest.raises(TypeError, match=r"\['a'\]\[0\]`: found a dict whose keys cannot be sorted") as caught:
        call(unsortable)
    assert isinstance(caught.value.__cause__, TypeError)


def refuses(*_: Any) -> Any:
    raise ZeroDivisionError("no answer")


Failing = type("Failing", (), {})


jax.tree_util.register_pytree_node(Failing, refuses, refuses)


@over_calls
def test_a_node_that_cannot_be_read_has_a_path(call: Callable[[Any], Any]) -> None:
    with pytest.raises(ZeroDivisionError, match="no answer") as caught:
        call({"a": [Failing()]})
    assert "tree['a'][0]`" in caught.value.__notes__[0]


def test_is_leaf_that_raises_has_a_path() -> None:
    def is_leaf(x: Any) -> bool:
        return 1 / (x != 1) > 2

    with pytest.raises(ZeroDivisionError) as caught:
        partax.partition({"a": [0, 1]}, int, is_leaf=is_leaf)
    assert "asking `is_leaf` about `pytree['a'][1]`" in caught.value.__notes__[0]


def test_nothing_leaks() -> None:
    one = [make_model(), {"a": Tray(1, Cell(array(1))), "b": Pair(None, Bag(2))}]
    other = jax.tree.map(lambda x: x, one)

    def run(i: int) -> None:
        tree.at(lambda t: t[0].layers[0].weight, one, i)
        tree.at(lambda t: t[1]["a"].top, one, i)
        assert tree.equal(one, other)
        partax.combine(*partax.partition(one, Tray, by_path("0/**"), is_array))
        spec, *parts = flat_partition([one, i], int, is_array, separator="/", rest="static")
        partax.flat_combine(spec, *parts)
        assert hash(spec) == hash(flat_partition([other, i], int, is_array, separator="/", rest="static")[0])
        assert partax.tree.Static([i]) == partax.tree.Static([i])
        for fails in (lambda: partax.partition(one, 3, strict=True), lambda: tree.at(lambda t: 1 / 0, one, 1)):
            with contextlib.suppress(ValueError, ZeroDivisionError):
                fails()

    check_steady(run, calls=400, warm=500)  # until the free lists of tuples are full


def raising(when: int) -> Callable[[Any], Any]:
    """A predicate that raises when it is asked for the time after `when`."""
    asked = itertools.count()
    return lambda x: next(asked) >= when and refuses()


Raising: Any = type("RaisingMeta", (type,), {"__instancecheck__": refuses})("Raising", (), {})
BROKEN: dict[str, Callable[[], Any]] = {
    "predicate": lambda: raising(3),
    "type": lambda: Raising,
    "in a combination": lambda: is_array & int | ~(is_array | raising(2)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_a_filter_raises_passes_through(name: str) -> None:
    tree = {"a": make_model(), "b": [1, 2, Bag(3, array(1))]}
    for filters in ((BROKEN[name](),), (is_array, BROKEN[name]()), (str, BROKEN[name](), is_array)):
        with pytest.raises(ZeroDivisionError, match="no answer"):
            partax.partition(tree, *filters)
        with pytest.raises(ZeroDivisionError, match="no answer"):
            flat_partition(tree, *filters, rest="static", separator="/")


def test_a_tree_that_jax_can_read_is_not_too_deep() -> None:
    depth = sys.getrecursionlimit() // 4
    tree = nested(WRAPS["list"], depth=depth)
    spec, arrays = flat_partition(tree, is_array, rest="static")
    assert list(arrays) == ["[0]" * depth] and hash(spec) == hash(flat_partition(tree, is_array, rest="static")[0])
    for made in (partax.partition(tree, is_array)[0], flat_combine(spec, arrays)):
        assert jax.tree.leaves(made)[0] is jax.tree.leaves(tree)[0]


# ---- Walks within walks, and small stacks.


class Again:
    """A node that walks the whole tree again when it is read."""

    entered = 0
    walk: Callable[[], object]

    def read(self) -> tuple[Any, None]:
        self.entered += 1
        if self.entered < 200:
            self.walk()
        return (), None


jax.tree_util.register_pytree_node(Again, Again.read, lambda *_: Again())


OPERATIONS: dict[str, Callable[[Any], object]] = {
    "describe": lambda tree: _core.describe_tree(tree, "tree"),
    "partition": lambda tree: partax.partition(tree, partax.is_array),
    "flat_partition": lambda tree: partax.flat_partition(tree, partax.is_array),
    "call": lambda tree: filter_jit(lambda tree: 1)(tree),
    "combine": lambda tree: partax.combine(tree, None, [[None]]),
    "at": lambda tree: partax.tree.at(lambda tree: tree, tree, 1),
}


@pytest.mark.parametrize("name", ["describe", "partition", "flat_partition", "call"])
def test_deep_walks_within_walks_are_a_recursion_error(name: str) -> None:
    again, operation = Again(), OPERATIONS[name]
    tree: Any = functools.reduce(lambda tree, _: [tree], range(1900), again)
    again.walk = lambda: operation(tree)
    with pytest.raises(RecursionError, match="this thread's stack has room for"):
        operation(tree)
    assert again.entered < 200
    assert filter_jit(lambda x: x + 1)(1.0) == 2


def test_a_thread_with_a_small_stack_gets_a_recursion_error() -> None:
    tree = nested(lambda tree: [tree], 1900)
    deep_filter = functools.reduce(lambda f, _: ~(f & True), range(1900), partax.is_array)
    operations = [functools.partial(OPERATIONS[name], tree) for name in ("describe", "partition", "combine", "at")]
    operations.append(lambda: partax.filter([1], deep_filter))
    errors: list[str] = []

    def run() -> None:
        for operation in operations:
            try:
                operation()
            except RecursionError as error:
                errors.append(str(error))

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert len(errors) == len(operations) and all("this thread's stack has room for" in error for error in errors)
