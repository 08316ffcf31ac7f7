"""Bad trees get a Python exception of the right kind from partition and flat_partition, or the right answer: trees that
are too deep or in themselves, of classes that come late, of nodes that change or fail."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import pytest

import partax
from deep_trees import WRAPS, link, nested, self_containing
from partax import by_path, flat_combine, flat_partition, is_array, not_
from partition_reference import parts_of, taken
from test_partition_bad_input import CALLS, check_works
from trees import Layer, Pair, Tray, array

# --- depth


def refuses_deep(wrap: Callable[[Any], Any], call: Callable[[Any], Any], error: Any = RecursionError) -> None:
    """The call refuses a deep tree, which then goes node by node: CPython's own recursion is not under test."""
    nodes: list[Any] = [array(1)]
    for _ in range(30_000):
        nodes.append(wrap(nodes[-1]))
    with pytest.raises(error):
        call(nodes[-1])
    while nodes:
        nodes.pop()


DEEP_CALLS: dict[str, Callable[[Any], Any]] = {
    "partition": lambda tree: partax.partition(tree, is_array),
    "partition by type": lambda tree: partax.partition(tree, str, dict),
    "partition by path": lambda tree: partax.partition(tree, by_path("**/x"), by_path(regex="x$")),
    "filter": lambda tree: partax.filter(tree, True),
    "flat_partition": lambda tree: flat_partition(tree, is_array),
    "static": lambda tree: flat_partition(tree, is_array, rest="static", separator="/"),
    "is_leaf": lambda tree: partax.partition(tree, int, is_leaf=lambda x: False),
    "combine": lambda tree: partax.combine(tree, tree),
    "a deep prefix": lambda tree: partax.partition(tree, tree),
    "a prefix in a combination": lambda tree: partax.partition([1], not_(tree)),
}


@pytest.mark.parametrize("call", DEEP_CALLS.values(), ids=DEEP_CALLS)
@pytest.mark.parametrize("name", WRAPS)
def test_trees_that_are_too_deep(name: str, call: Any) -> None:
    refuses_deep(WRAPS[name], call, (RecursionError, ValueError))
    check_works()


@pytest.mark.parametrize("call", DEEP_CALLS.values(), ids=DEEP_CALLS)
@pytest.mark.parametrize("name", self_containing())
def test_trees_that_contain_themselves(name: str, call: Any) -> None:
    with pytest.raises((RecursionError, ValueError)):
        call(self_containing()[name])
    check_works()


def test_deep_trees_are_recursion_errors_and_not_value_errors() -> None:
    for wrap in (WRAPS["list"], WRAPS["dict"], link):
        for call in list(DEEP_CALLS.values())[:7]:
            refuses_deep(wrap, call)
    for tree in self_containing().values():
        for call in list(DEEP_CALLS.values())[:7]:
            with pytest.raises(RecursionError):
                call(tree)


def test_a_tree_that_jax_can_read_is_not_too_deep() -> None:
    tree = nested(WRAPS["list"], depth=sys.getrecursionlimit() // 4)
    (kept,) = jax.tree.leaves(partax.partition(tree, is_array)[0])
    assert kept is jax.tree.leaves(tree)[0]
    spec, arrays = flat_partition(tree, is_array, rest="static")
    assert list(arrays) == ["[0]" * (sys.getrecursionlimit() // 4)]
    assert hash(spec) == hash(flat_partition(tree, is_array, rest="static")[0])
    assert jax.tree.leaves(flat_combine(spec, arrays))[0] is kept


# --- nodes that fail, classes that come late


def test_dict_keys_that_cannot_be_sorted() -> None:
    tree = {"k": [{1: array(1), "a": 2}]}
    for call in CALLS.values():
        with pytest.raises((TypeError, ValueError)) as caught:
            call(tree, is_array)
        assert "['k'][0]" in str(caught.value)
    check_works()


def test_a_class_that_is_registered_late() -> None:
    class Late:
        def __init__(self, *items: Any) -> None:
            self.items = items

    tree = [Late(1, array(1)), 2]
    assert taken(tree, Late) == ["0"] and taken(tree, int) == ["1"]
    assert list(flat_partition(tree)[1]) == ["[0]", "[1]"]
    jax.tree_util.register_pytree_node(Late, lambda x: (x.items, None), lambda _, items: Late(*items))
    assert parts_of(tree, Late, int) == [["0/0", "0/1"], ["1"], []]
    spec, all_leaves = flat_partition(tree, separator="/")
    assert list(all_leaves) == ["0/0", "0/1", "1"]
    assert flat_combine(spec, all_leaves)[0].items[1] is tree[0].items[1]


def test_types_that_are_made_and_dropped(collect: Any) -> None:
    def run(i: int) -> None:
        cls = type(f"Kind{i}", (Layer,), {"__annotations__": {}})
        tree = [cls(array(1)), Layer(array(1))]
        assert len(jax.tree.leaves(partax.partition(tree, cls)[0])) == 2
        other = type("Plain", (), {})
        assert jax.tree.leaves(partax.partition([other(), 1], other)[1]) == [1]
        spec, taken_ = flat_partition([other(), 1], int, rest="static")
        assert type(flat_combine(spec, taken_)[0]) is other

    for i in range(50):
        run(i)
    collect()
    check_works()


def test_abstract_classes_that_learn_new_subclasses() -> None:
    import abc

    class Abstract(abc.ABC):  # noqa: B024
        pass

    class Plain:
        pass

    tree = [Plain(), Layer(1), 1]
    assert parts_of(tree, Abstract) == [[], ["0", "1/weight", "1/rate", "2"]]
    Abstract.register(Plain)
    Abstract.register(Layer)
    assert parts_of(tree, Abstract) == [["0", "1/weight", "1/rate"], ["2"]]


def test_proxies_whose_class_raises() -> None:
    class Proxy:
        @property
        def __class__(self) -> type:
            raise ZeroDivisionError("no class")

    tree = [1, [Proxy()], "x"]
    for call in CALLS.values():
        with pytest.raises(ZeroDivisionError):
            call(tree, str)
    check_works()


# --- what may go wrong with combine


def test_parts_of_another_tree_do_not_combine() -> None:
    parts = partax.partition({"a": [1, "x"]}, int)
    for other in ({"a": [1]}, {"b": [1, "x"]}, {"a": (None, "x")}, [1, "x"], {"a": 1}):
        with pytest.raises(ValueError):
            partax.combine(*parts, other)
    check_works()


def test_specs_of_mutable_nodes_are_not_touched_later() -> None:
    tree = {"a": [1, 2], "b": Pair([3], Tray(4, 5, label=[1]))}
    spec, all_leaves = flat_partition(tree)
    tree["a"].append(3)
    tree["b"].left.clear()
    tree["c"] = 1
    made = flat_combine(spec, all_leaves)
    assert made["a"] == [1, 2] and made["b"].left == [3] and list(made) == ["a", "b"]
    made["a"].clear()
    assert flat_combine(spec, all_leaves)["a"] == [1, 2]


def test_dictionaries_that_change_while_they_are_read() -> None:
    spec, all_leaves = flat_partition([1, 2, 3])

    class Sly(str):
        def __hash__(self) -> int:
            all_leaves.clear()
            return str.__hash__(self)

        def __eq__(self, other: object) -> bool:
            all_leaves.clear()
            return str.__eq__(self, other)

    for key in ("[0]", "[3]", "x"):
        with pytest.raises(KeyError, match="missing"):
            flat_combine(spec, all_leaves, {Sly(key): 1})
        all_leaves.update({"[0]": 1, "[1]": 2, "[2]": 3})
    assert flat_combine(spec, all_leaves) == [1, 2, 3]


def test_modules_with_absent_fields() -> None:
    layer = Layer(array(2, 2), array(2))
    object.__delattr__(layer, "bias")
    for f in (is_array, Layer, by_path("0/weight")):
        kept, rest = partax.partition([layer], f)
        assert "bias" not in vars(kept[0]) and "bias" not in vars(rest[0])
        assert kept[0].weight is layer.weight
    spec, all_leaves = flat_partition([layer])
    assert "bias" not in vars(flat_combine(spec, all_leaves)[0])
    assert isinstance(flat_combine(spec, all_leaves)[0], eqx.Module)
