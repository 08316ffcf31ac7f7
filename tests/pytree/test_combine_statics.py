"""Guards the promise that trees side by side (combined, or a prefix of filters or shardings) are alike where their
keys, static fields and aux data are equal by `==`, as for jax; and the errors where they are not."""

import collections
import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import partax
from partition_reference import assert_identical
from trees import Tray

pytestmark = pytest.mark.filterwarnings("ignore:A JAX array is being set as static")


@dataclasses.dataclass(frozen=True)
class Length:
    """Lengths in several units are equal if they are as long; how they are written differs."""

    value: int
    unit: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Length) and self._meters() == other._meters()

    def __hash__(self) -> int:
        return hash(self._meters())

    def _meters(self) -> int:
        return self.value * {"m": 1, "km": 1000}[self.unit]


class Module(eqx.Module):
    x: Any
    static: Any = eqx.field(static=True)


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


# Two values that are equal, but not the same object.
EQUAL: dict[str, tuple[Any, Any]] = {
    "sharding": (sharding(), sharding()),
    "a class with ==": (Length(1, "km"), Length(1000, "m")),
    "int and bool": (1, True),
}
PLACES: dict[Any, str] = {Module: ".static", Node: ".<aux data>"}


@pytest.mark.parametrize("make", PLACES)
@pytest.mark.parametrize("name", EQUAL)
def test_equal_statics_combine_and_the_first_is_taken(name: str, make: Any) -> None:
    first, second = EQUAL[name]
    array = jnp.ones(2)
    for trees in ((make(array, first), make(None, second)), (make(None, second), make(array, first))):
        combined = partax.combine(*trees)
        assert combined.x is array and combined.static is trees[0].static
    kept, rest = partax.partition(make([array, 1], first), make([True, False], second))
    assert kept.static is rest.static is first and kept.x[0] is array and rest.x == [None, 1]
    placed = partax.filter_shard(make([array], first), make([sharding()], second))
    assert placed.static == first and placed.x[0].sharding == sharding()


@pytest.mark.parametrize("make", PLACES)
def test_different_statics_are_named(make: Any) -> None:
    for first, second in ((Length(1, "km"), Length(1, "m")), (None, 0), ((1, 2), (1, 3))):
        one, other = make(jnp.ones(2), first), make(None, second)
        with pytest.raises(ValueError):
            eqx.combine(one, other)
        with pytest.raises(ValueError) as caught:
            partax.combine(one, None, one, other)
        expected = f"found {second!r}, expected {first!r}, as pytrees[0] has here"
        assert str(caught.value).startswith(f"`pytrees[3]{PLACES[make]}`: {expected}")


def test_keys_of_dicts_are_compared_as_jax_does() -> None:
    merged = partax.combine({1: None, 2.0: 3}, {True: 5, 2: None})
    assert merged == {1: 5, 2: 3} and [type(key) for key in merged] == [int, float]
    assert_identical(merged, eqx.combine({1: None, 2.0: 3}, {True: 5, 2: None}))


Ordered = collections.OrderedDict
# Trees of which one is unlike the first that is there, and how the message of combine begins after "pytrees".
UNLIKE: dict[str, tuple[list[Any], str]] = {
    "length": ([[1, 2], [1]], "[1]`: found a `list` with 1 child, expected "),
    "type": ([[1], (1,)], "[1]`: found a `tuple` with 1 child, expected the structure of pytrees[0], which has a "),
    "leaf": ([[[1]], [3.5]], "[1][0]`: found a `float`, expected the structure of pytrees[0]"),
    "class": ([Module(1, "a"), Node(1, "a")], "[1]`: found a `Node` with 1 child, expected "),
    "keys": ([[{"a": 1}], [{"b": None}]], "[1][0]`: found a `dict` with the keys ['b'], expected a `dict` with"),
    "order of keys": ([Ordered(a=1, b=2), Ordered(b=1, a=2)], "[1]`: found a `collections.OrderedDict` with the keys"),
    "NamedTuple": ([Row(1, 2), (1, 2)], "[1]`: found a `tuple` with 2 children, expected the structure of pytrees[0]"),
    "below registered nodes": (
        [Tray(Tray(1, [2]), {"k": [1, Tray(1, Module(1, s))]}) for s in "ab"],
        "[1].bottom['k'][1].bottom.static`: found 'b', expected 'a'",
    ),
    "the first that is there": (
        [None, [None, 1], [Module(1, "a"), None], [Module(1, "b"), None]],
        "[3][0].static`: found 'b', expected 'a', as pytrees[2] has",
    ),
}


@pytest.mark.parametrize(("trees", "message"), UNLIKE.values(), ids=UNLIKE)
def test_trees_that_are_not_alike_are_named(trees: list[Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        partax.combine(*trees)
    assert str(caught.value).startswith(f"`pytrees{message}")
    if len(trees) == 2:
        with pytest.raises(ValueError):
            jax.tree.map(lambda *_: 0, *trees)
        assert partax.tree.equal(*trees) is False


class Asked:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __eq__(self, other: object) -> Any:
        raise self.error

    __hash__ = object.__hash__


def test_comparisons_that_raise() -> None:
    call = lambda a, b: partax.combine([Module(1, a)], [Module(None, b)])
    error = ZeroDivisionError("no answer")
    with pytest.raises(TypeError) as caught:
        call(Asked(error), Asked(error))
    assert caught.value.__cause__ is error
    assert str(caught.value).startswith("`pytrees[1][0].static`: comparing a `Asked` with a `Asked` by `==`")
    for passing in (MemoryError(), KeyboardInterrupt()):
        with pytest.raises(type(passing)) as passed:
            call(Asked(passing), Asked(passing))
        assert passed.value is passing
