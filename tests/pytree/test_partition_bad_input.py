"""Guards the promise that bad input gets a Python exception of the right kind from partition and flat_partition, or the
right answer: filters that raise, change the tree or enter again, keys that cannot be printed, trees that are too deep
or in themselves, nodes that change or fail, classes that come late; and nothing leaks."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import jax
import pytest

import partax
from deep_trees import WRAPS, nested
from partax import any_of, by_path, flat_combine, flat_partition, is_array, not_
from partition_reference import assert_identical, parts_of, taken
from trees import Bag, Layer, array, make_model

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose

CALLS: dict[str, Callable[..., Any]] = {
    "partition": lambda tree, *filters, **options: partax.partition(tree, *filters, **options),
    "flat_partition": lambda tree, *filters, **options: flat_partition(tree, *filters, **options),
    "static": lambda tree, *filters, **options: flat_partition(tree, *filters, rest="static", separator="/", **options),
    "filter": lambda tree, *filters, **options: [partax.filter(tree, f, **options) for f in filters],
}
over_calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def check_works() -> None:
    tree = make_model()
    arrays, rest = partax.partition(tree, is_array)
    assert_identical(partax.combine(rest, arrays), tree)
    spec, arrays, rest = flat_partition(tree, Layer, by_path("name"), separator="/")[:3]
    assert_identical(flat_combine(spec, arrays, rest, {}), tree)


# --- filters that fail


def raising(when: int = 0) -> Callable[[Any], bool]:
    """A predicate that raises when it is asked for the time after `when`."""
    asked: list[Any] = []

    def predicate(x: Any) -> bool:
        asked.append(x)
        if len(asked) > when:
            raise ZeroDivisionError("no answer")
        return False

    return predicate


class NoTruth:
    def __bool__(self) -> bool:
        raise ZeroDivisionError("no answer")


class RaisingMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        raise ZeroDivisionError("no answer")


class Raising(metaclass=RaisingMeta):
    pass


class NotBool(type):
    def __instancecheck__(cls, instance: Any) -> Any:
        return NoTruth()


class Doubtful(metaclass=NotBool):
    pass


BROKEN: dict[str, Callable[[], Any]] = {
    "predicate": raising,
    "predicate, later": lambda: raising(3),
    "answer": lambda: lambda x: NoTruth(),
    "type": lambda: Raising,
    "type in a tuple": lambda: (str, Raising),
    "answer of a type": lambda: Doubtful,
    "in a combination": lambda: any_of(str, not_(raising(2))),
}


@over_calls
@pytest.mark.parametrize("name", BROKEN)
def test_what_a_filter_raises_passes_through(call: Any, name: str) -> None:
    tree = {"a": make_model(), "b": [1, 2, Bag(3, array(1))]}
    for filters in ((BROKEN[name](),), (is_array, BROKEN[name]()), (str, BROKEN[name](), is_array)):
        with pytest.raises(ZeroDivisionError, match="no answer"):
            call(tree, *filters)
        check_works()


# --- filters that change the tree


@over_calls
@pytest.mark.parametrize("when", [0, 1, 2])
@pytest.mark.parametrize("whole", [False, True])
def test_a_filter_that_changes_the_tree_while_it_is_asked(call: Any, when: int, whole: bool) -> None:
    for change in (dict.clear, lambda it: it.update({str(i): i for i in range(100)})):
        inner: dict[str, Any] = {"a": 1, "b": [2, 3], "d": "x"}
        tree, asked = {"m": inner, "n": Bag(1, inner)}, itertools.count()

        def act(x: Any, tree: Any = tree if whole else inner, asked: Any = asked, change: Any = change) -> bool:
            if next(asked) == when:
                change(tree)
            return False

        try:
            call(tree, act, is_array)
        except RuntimeError as error:
            assert "changed size" in str(error)
        assert next(asked) > when
        check_works()


def test_a_filter_that_enters_again() -> None:
    tree = make_model()
    expected = taken(tree, is_array)
    depth: list[int] = []

    def again(x: Any) -> bool:
        if len(depth) < 3:
            depth.append(1)
            assert taken(tree, again) == expected
            spec, *dicts = flat_partition(tree, again, separator="/")
            assert list(dicts[0]) == expected
            assert_identical(flat_combine(spec, *dicts), tree)
        return is_array(x)

    assert taken(tree, again) == expected
    assert parts_of(tree, again, not_(again)) == [expected, ["layers/0/rate", "layers/1/rate"], []]


# --- keys


class BadKey:
    """Sorted by number; printing it is refused, or gives no text, or runs something."""

    def __init__(self, number: int, text: Callable[[], Any]) -> None:
        self.number, self.text = number, text

    def __lt__(self, other: BadKey) -> bool:
        return self.number < other.number

    def __repr__(self) -> Any:
        return self.text()

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BadKey) and self.number == other.number


def refuses() -> str:
    raise ZeroDivisionError("no text")


@pytest.mark.parametrize("separator", [None, "/"])
def test_keys_that_cannot_be_printed(separator: str | None) -> None:
    for text, error in ((refuses, ZeroDivisionError), (lambda: 3, TypeError)):
        tree = {BadKey(0, text): [1, array()], BadKey(1, text): "x"}
        arrays, rest = partax.partition(tree, is_array)  # without paths nothing is printed
        assert partax.combine(rest, arrays) == tree
        assert [len(jax.tree.leaves(part)) for part in partax.partition(tree, str, list)] == [1, 2, 0]
        with pytest.raises(error):
            flat_partition(tree, separator=separator)
        with pytest.raises(error):
            flat_partition(tree, is_array, separator=separator)
        for pattern in ("**/0", "*/*", "a"):
            with pytest.raises(error):
                partax.partition(tree, by_path(pattern))
        with pytest.raises(error):
            partax.partition(tree, by_path(regex="a"))
    check_works()


@pytest.mark.parametrize("separator", [None, "/"])
def test_keys_that_change_the_tree_when_printed(separator: str | None) -> None:
    for use in ((), (is_array,), (by_path("**/0"),), (by_path(regex="0"), int)):
        tree: dict[Any, Any] = {}

        def clear(tree: dict[Any, Any] = tree) -> str:
            for value in tree.values():
                if isinstance(value, list):
                    value.clear()
            tree.clear()
            return "key"

        tree.update({BadKey(0, clear): [1, array(1)], BadKey(1, clear): "x", BadKey(2, clear): [2]})
        with pytest.raises(RuntimeError, match="changed size"):
            flat_partition(tree, *use, separator=separator)
        check_works()


class Text(str):
    """A subclass of str with its own ideas."""

    def __repr__(self) -> str:
        return "mine"

    def __str__(self) -> str:
        return "also mine"


@pytest.mark.parametrize("separator", [None, "/"])
def test_subclasses_of_str_and_int_as_keys(separator: str | None) -> None:
    class Number(int):
        def __repr__(self) -> str:
            return "number"

        __str__ = __repr__

    for tree in ({Text("k"): [1, 2]}, {Number(1): [1, 2]}, [{Text("k"): 1}, {Text("k"): 2}]):
        paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
        options: Any = {} if separator is None else {"simple": True, "separator": separator}
        spec, all_leaves = flat_partition(tree, separator=separator)
        assert list(all_leaves) == [jax.tree_util.keystr(path, **options) for path in paths]
        assert all(type(key) is str for key in all_leaves) and flat_combine(spec, all_leaves) == tree
    assert taken({Text("k"): 1}, by_path("also mine")) == ["also mine"]


class OwnKey:
    """A key of a path that is not jax's."""

    def __str__(self) -> str:
        return "<own>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnKey)

    __hash__ = None  # type: ignore[assignment]


class Own:
    def __init__(self, *items: Any) -> None:
        self.items = items


jax.tree_util.register_pytree_with_keys(
    Own, lambda o: (tuple((OwnKey(), x) for x in o.items), None), lambda _, items: Own(*items)
)


def test_keys_of_the_user_s_own_kind() -> None:
    tree = {"a": Own(1, [2], "x")}
    assert list(flat_partition(tree)[1]) == ["['a']<own>", "['a']<own>[0]", "['a']<own>#2"]
    assert list(flat_partition(tree, separator="/")[1]) == ["a/<own>", "a/<own>/0", "a/<own>#2"]
    assert taken(tree, by_path("a/<own>")) == ["a/<own>", "a/<own>"]


# --- depth


def test_a_tree_that_jax_can_read_is_not_too_deep() -> None:
    tree = nested(WRAPS["list"], depth=sys.getrecursionlimit() // 4)
    (kept,) = jax.tree.leaves(partax.partition(tree, is_array)[0])
    assert kept is jax.tree.leaves(tree)[0]
    spec, arrays = flat_partition(tree, is_array, rest="static")
    assert list(arrays) == ["[0]" * (sys.getrecursionlimit() // 4)]
    assert hash(spec) == hash(flat_partition(tree, is_array, rest="static")[0])
    assert jax.tree.leaves(flat_combine(spec, arrays))[0] is kept


# --- nodes that fail, classes that come late


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
