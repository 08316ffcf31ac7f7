"""Guards the promise that trees side by side (that are combined or mapped, a prefix of filters or shardings) are alike
where their keys, static fields and aux data are equal by `==`, as for jax; and the errors where they are not."""

import collections
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import partax
from partition_reference import assert_identical
from trees import Bag, Tray

pytestmark = pytest.mark.filterwarnings("ignore:A JAX array is being set as static")


class Length:
    """Lengths in several units are equal if they are as long; how they are written differs."""

    def __init__(self, value: float, unit: str) -> None:
        self.value, self.unit = value, unit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Length) and self._meters() == other._meters()

    def __hash__(self) -> int:
        return hash(self._meters())

    def __repr__(self) -> str:
        return f"{self.value} {self.unit}"

    def _meters(self) -> float:
        return self.value * {"m": 1, "km": 1000}[self.unit]


class Truthy(Length):
    """It has no hash, and its `==` gives something with a truth value, as NumPy's does."""

    def __eq__(self, other: object) -> Any:
        return np.array([super().__eq__(other)])

    __hash__ = None  # pyright: ignore[reportAssignmentType]


class Module(eqx.Module):
    x: Any
    static: Any = eqx.field(static=True)

    def method(self) -> None: ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Record:
    x: Any
    static: Any = dataclasses.field(metadata={"static": True})


class Node:
    def __init__(self, x: Any, static: Any) -> None:
        self.x, self.static = x, static


jax.tree_util.register_pytree_node(
    Node, lambda node: ((node.x,), node.static), lambda static, children: Node(children[0], static)
)


class Row(NamedTuple):
    x: Any
    inner: Any


def sharding() -> Any:
    return NamedSharding(Mesh(np.array(jax.devices()[:1]), ("data",)), PartitionSpec("data"))


NAN = float("nan")
# Two values that are equal, but not the same object.
EQUAL: dict[str, tuple[Any, Any]] = {
    "treedef": (jax.tree.structure([0]), jax.tree.structure([0])),
    "sharding": (sharding(), sharding()),
    "a class with ==": (Length(1, "km"), Length(1000, "m")),
    "a truth value": (Truthy(1, "km"), Truthy(1000, "m")),
    "int and bool": (1, True),
    "zeros": (0.0, -0.0),
    "numpy scalar": (2, np.int64(2)),
    "containers": ((1, [{"a": Length(1, "km")}]), (True, [{"a": Length(1000, "m")}])),
    "an array of one": (np.array([1]), np.array([1])),
}

DIFFERENT: dict[str, tuple[Any, Any]] = {
    "a class with ==": (Length(1, "km"), Length(1, "m")),
    "None": (None, 0),
    "tuples": ((1, 2), (1, 3)),
}

# The trees with a static part, and the path of it.
PLACES: dict[str, tuple[Callable[[Any, Any], Any], str | None]] = {
    "module": (Module, ".static"),
    "dataclass": (Record, ".static"),
    "registered": (Node, ".<aux data>"),
    "in a NamedTuple": (lambda x, s: Row(x, Node(None, s)), ".inner.<aux data>"),
    "deep": (lambda x, s: {"a": [(x, 1), Module(Record(x, s), "same")]}, "['a'][1].x.static"),
    "below registered nodes": (lambda x, s: Bag(Bag(1, 2), Bag(x, [Module(x, s)])), None),  # pyright: ignore[reportAssignmentType]
    "bound method": (lambda x, s: Module(x, s).method, ".__self__.static"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", EQUAL)
def test_equal_statics_combine_and_the_first_is_taken(name: str, place: str) -> None:
    make, (first, second) = PLACES[place][0], EQUAL[name]
    one, other = make(jnp.ones(2), first), make(None, second)
    for trees in ((one, other), (other, one)):
        assert_alike(partax.combine(*trees), eqx.combine(*trees))


def assert_alike(actual: Any, expected: Any) -> None:
    """The same leaves, and the static part of the same tree."""
    assert type(actual) is type(expected) and getattr(actual, "static", None) is getattr(expected, "static", None)
    mine, theirs = (jax.tree.leaves(x, is_leaf=lambda y, x=x: y is not x) for x in (actual, expected))
    if any(child is expected for child in theirs):
        assert actual is expected
        return
    for a, b in zip(mine, theirs, strict=True):
        assert_alike(a, b)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", DIFFERENT)
def test_different_statics_are_named(name: str, place: str) -> None:
    (make, path), (first, second) = PLACES[place], DIFFERENT[name]
    one, other = make(jnp.ones(2), first), make(None, second)
    with pytest.raises(ValueError):
        eqx.combine(one, other)
    with pytest.raises(ValueError) as caught:
        partax.combine(one, None, one, other)
    assert path is None or str(caught.value).startswith(f"`pytrees[3]{path}`: found ")
    assert f"found {second!r}, expected {first!r}, as pytrees[0] has here" in str(caught.value)
    for last in range(12):  # what raises while the place is sought tells its own
        left = itertools.count(-last)
        with pytest.raises((ValueError, ZeroDivisionError)) as caught:
            partax.combine([one], [other], is_leaf=lambda _, left=left: bool(0 // next(left)))
        assert caught.type is ValueError or str(path) not in str(vars(caught.value))


def test_keys_of_dicts_are_compared_as_jax_does() -> None:
    merged = partax.combine({1: None, 2.0: 3}, {True: 5, 2: None})
    assert merged == {1: 5, 2: 3} and [type(key) for key in merged] == [int, float]
    assert_identical(merged, eqx.combine({1: None, 2.0: 3}, {True: 5, 2: None}))


Ordered, Default = collections.OrderedDict, collections.defaultdict
# Trees of which one is unlike the first that is there, and how the message of combine begins after "pytrees".
UNLIKE: dict[str, tuple[list[Any], str]] = {
    "length": ([[1, 2], [1]], "[1]`: found a `list` with 1 child, expected "),
    "type": ([[1, 2], (1, 2)], "[1]`: found a `tuple`, expected the structure of pytrees[0], which has a `list`"),
    "leaf": ([[[1]], [3.5]], "[1][0]`: found a `float`, expected the structure of pytrees[0]"),
    "class": ([Module(1, "a"), Record(1, "a")], "[1]`: found a `Record`, expected "),
    "keys": ([[{"a": 1}], [{"b": None}]], "[1][0]`: found a `dict` with the keys ['b'], expected a `dict` with"),
    "order of keys": ([Ordered(a=1, b=2), Ordered(b=1, a=2)], "[1]`: found a `collections.OrderedDict` with the keys"),
    "NamedTuple": ([Row(1, 2), (1, 2)], "[1]`: found a `tuple`, expected the structure of pytrees[0], which has a"),
    "keys and a factory": ([Default(list, a=1), Default(list, c=1)], "[1]`: found a `collections.defaultdict` with"),
    "factory": ([Default(list), Default(int)], "[1].default_factory`: found <class 'int'>, expected <class 'list'>"),
    "below registered nodes": (
        [Tray(Tray(1, [2]), {"k": [1, Tray(1, Module(1, s))]}) for s in "ab"],
        "[1].bottom['k'][1].bottom.static`: found 'b', expected 'a'",
    ),
    "none is the odd one out": ([Module(i, i) for i in range(3)], "[1].static`: found 1, expected 0, as pytrees[0]"),
    "the first is the odd one out": ([Module(i, i == 0) for i in range(3)], "[0].static`: found True, expected False"),
    "the first that is there": (
        [None, [None, 1], [Module(1, "a"), None], [Module(1, "b"), None]],
        "[3][0].static`: found 'b', expected 'a', as pytrees[2] has",
    ),
}


@pytest.mark.parametrize(("trees", "message"), UNLIKE.values(), ids=UNLIKE)
def test_trees_that_are_not_alike_are_named(trees: list[Any], message: str) -> None:
    if None not in trees:
        with pytest.raises(ValueError):
            eqx.combine(*trees)
    with pytest.raises(ValueError) as caught:
        partax.combine(*trees)
    assert str(caught.value).startswith(f"`pytrees{message}")
    if len(trees) > 2:
        return
    with pytest.raises(ValueError):
        jax.tree.map(lambda *_: 0, *trees)
    assert partax.tree.equal(*trees) is False


def test_a_nan_is_equal_to_any() -> None:
    assert all(partax.combine(Module(1, NAN), Module(None, other)).static is NAN for other in (NAN, float("nan")))


def test_an_absent_field_is_equal_to_an_absent_one_only() -> None:
    one, other = Module(1, "a"), Module(None, "a")
    del vars(one)["static"], vars(other)["static"]
    assert "static" not in vars(partax.combine(one, other))
    with pytest.raises(ValueError, match="attributes are not just its fields here"):
        partax.combine(one, Module(1, "a"))


def throw(error: BaseException) -> Any:
    raise error


class Asked:
    """Its `==` gives what it is told to."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer

    def __eq__(self, other: object) -> Any:
        return self.answer()

    __hash__ = object.__hash__


ANSWERS: dict[str, Callable[[BaseException], Any]] = {
    "raises": throw,
    "has no truth value": lambda error: type("NoTruth", (), {"__bool__": lambda _: throw(error)})(),
}

JOINS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "leaves": ("pytrees[1]", lambda a, b: partax.combine([Module(1, a)], [Module(None, b)])),
    "nodes": ("pytrees[1]", lambda a, b: partax.combine([Module([1], a)], [Module(None, b)])),
    "filter": ("pytree", lambda a, b: partax.partition([Module(1, a)], [Module(True, b)])),
    "sharding": ("tree", lambda a, b: partax.filter_shard([Module(1, a)], [Module(None, b)])),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("join", JOINS)
def test_comparisons_that_raise(answer: Any, join: str) -> None:
    root, call = JOINS[join]
    error = ZeroDivisionError("no answer")
    one, other = (Asked(lambda: answer(error)) for _ in range(2))
    with pytest.raises(TypeError) as caught:
        call(one, other)
    assert caught.value.__cause__ is error
    assert str(caught.value).startswith(f"`{root}[0].static`: comparing a `Asked` with a `Asked` by `==`")
    for passing in (MemoryError(), KeyboardInterrupt()):
        one.answer = other.answer = lambda passing=passing: answer(passing)
        with pytest.raises(type(passing)) as passed:
            call(one, other)
        assert passed.value is passing


def test_an_array_has_no_one_truth_value() -> None:
    one, other = np.arange(3), np.arange(3)
    assert partax.combine(Module(1, one), Module(None, one)).static is one
    with pytest.raises(TypeError, match=r"^`pytrees\[1\]\.static`: .*gave a `numpy.ndarray` that is neither") as caught:
        partax.combine(Module(1, one), Module(None, other))
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("name", EQUAL)
def test_prefixes_of_filters_and_shardings(name: str) -> None:
    one, other = EQUAL[name]
    array = jnp.ones(2)
    for make in (Module, Record, Node):
        tree, prefix = make([array, 1], one), make([True, False], other)
        kept, rest = partax.partition(tree, prefix)
        assert kept.static is one and rest.static is one and kept.x[0] is array and rest.x == [None, 1]
        assert partax.filter(tree, prefix).x[0] is array
        placed = partax.filter_shard(make([array], one), make([sharding()], other))
        assert placed.static == one and placed.x[0].sharding == sharding()


def test_prefixes_that_differ() -> None:
    for call, told in (
        (
            lambda: partax.partition([Module(1, "a")], [Module(True, "b")]),
            r"pytree\[0\]\.static`: found 'a', expected 'b'",
        ),
        (
            lambda: partax.filter([{"a": 1}], [{"b": True}]),
            r"pytree\[0\]`: found a `dict` with the keys \['a'\], expected",
        ),
        (lambda: partax.filter_shard(Node(jnp.ones(2), "a"), Node(sharding(), "b")), r"tree\.<aux data>`: found 'a'"),
    ):
        with pytest.raises(ValueError, match=f"^`{told}"):
            call()


def test_values_that_cannot_be_shown() -> None:
    Mute = type("Mute", (), {"__repr__": lambda _: 1 / 0})
    with pytest.raises(ValueError, match=r"found a `Mute`, expected a `Mute`, as .*they look alike, but are not equal"):
        partax.combine(Module(1, Mute()), Module(1, Mute()))
    with pytest.raises(ValueError) as caught:
        partax.combine(Module(1, "a" * 10_000), Module(1, "\U0001f600" * 10_000))
    assert len(str(caught.value)) < 1000 and "\U0001f600..." in str(caught.value)


def test_looking_for_the_odd_one_out_lets_an_interrupt_pass() -> None:
    interrupts, unlike = lambda: throw(KeyboardInterrupt()), lambda: False
    for first, others in ((interrupts, unlike), (unlike, interrupts)):
        static = Asked(others)  # it is asked when the first tree is compared with the second
        with pytest.raises(KeyboardInterrupt):
            partax.combine(Module(1, Asked(first)), Module(2, static), Module(3, static))
