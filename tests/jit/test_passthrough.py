"""A part of an argument that comes back as it came is that part itself, and nothing else is: no copy, no dispatch."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from conftest import TraceCounter
from partax import filter_jit
from trees import Bag, Cell, Layer, Pair, array, assert_same

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Frozen:
    weight: Any
    mode: Any = dataclasses.field(default="same", metadata={"static": True})


@dataclasses.dataclass(frozen=True)
class Counted:
    """It has a field that is made anew with each instance."""

    weight: Any
    made: Any = dataclasses.field(default_factory=list, init=False)


class Thawed(Frozen):
    """Anybody may set its fields."""

    __setattr__ = object.__setattr__


jax.tree_util.register_dataclass(Counted, ["weight"], [])
jax.tree_util.register_dataclass(Thawed, ["weight"], ["mode"])


class Noted(Pair):
    """A named tuple whose instances have a dictionary."""


class Two(eqx.Module):
    first: Any
    second: Any
    rate: Any = eqx.field(static=True, default=0.5)


def linear(start: float = 0.0) -> Layer:
    return Layer(array(2, 2, start=start), array(2, start=start))


IMMUTABLE: dict[str, Callable[[], Any]] = {
    "module": linear,
    "module in module": lambda: Two(linear(), linear(4)),
    "tuple": lambda: (array(2), "s", None, 3),
    "named tuple": lambda: Pair(array(2), 1.5),
    "frozen dataclass": lambda: Frozen(array(2), mode=("a", 1)),
    "nested": lambda: Two(Pair((array(1), 1), Frozen(linear())), (None, (array(2), ("x", jnp.tanh)))),
    "leaves in a row": lambda: (*(array(1, start=i) for i in range(9)), *range(1000, 1009), array(2)),
    "optax state": lambda: optax.adam(1e-3).init({"w": array(2)})[1:],
    "no arrays": lambda: Two("a", (1, None, "b")),
    "no fields": lambda: optax.EmptyState(),
    "key": lambda: Pair(jax.random.key(0), jnp.ones((), jnp.bfloat16)),
}
CHANGEABLE: dict[str, Callable[[], Any]] = {
    "list": lambda: [array(2)],
    "dict": lambda: {"a": array(2)},
    "ordered dict": lambda: OrderedDict(a=array(2)),
    "dataclass": lambda: Cell(array(2)),
    "frozen dataclass that thaws": lambda: Thawed(array(2)),
    "dataclass with a field made anew": lambda: Counted(array(2)),
    "named tuple with attributes": lambda: Noted(array(2), 1),
    "registered": lambda: Bag(array(2)),
    "list in a tuple": lambda: (array(2), [array(1)]),
    "dict in a module": lambda: Two({"a": array(1)}, array(2)),
    "list in a module's statics": lambda: Two(array(1), array(2), rate=[1, 2]),
    "list in a tuple of a module's statics": lambda: Two(array(1), array(2), rate=(1, [2])),
    "wrapped module": lambda: eqx.filter_jit(linear()),
}


def families(made: dict[str, Callable[[], Any]]) -> Any:
    return pytest.mark.parametrize("make", made.values(), ids=made)


@families(IMMUTABLE)
def test_what_cannot_change_is_the_argument_itself(make: Callable[[], Any], traces: TraceCounter) -> None:
    @filter_jit
    def f(tree: Any, x: jax.Array) -> Any:
        traces.tick()
        return x + 1, {"a": [tree]}

    for i in range(4):
        tree, x = make(), array(2)
        plain = f.__wrapped__(tree, x)
        traces.count -= 1
        found = f(tree, x)
        assert_same(found, plain)
        assert plain[1]["a"][0] is tree
        assert found[1]["a"][0] is tree, i
    assert traces.count == 1


@families(CHANGEABLE)
def test_what_may_change_is_made_anew(make: Callable[[], Any]) -> None:
    f = filter_jit(lambda tree, x: (tree, x + 1))
    for _ in range(3):
        tree = make()
        found = f(tree, array(2))[0]
        assert found is not tree and type(found) is type(tree)
        olds, news = jax.tree.leaves(tree), jax.tree.leaves(found)
        assert all(a is b for a, b in zip(olds, news, strict=True))


def test_only_whole_parts_in_their_order() -> None:
    f = filter_jit(lambda tree: {"half": Two(tree.first, array(2)), "swapped": (tree.second[1], tree.second[0])})
    for _ in range(3):
        tree = Two(linear(), (array(2), array(3)))
        found = f(tree)
        assert found["half"] is not tree and found["half"].first is tree.first
        assert found["swapped"] is not tree.second
        assert found["swapped"][0] is tree.second[1] and found["swapped"][1] is tree.second[0]


def test_a_part_that_comes_back_twice() -> None:
    f = filter_jit(lambda tree: (tree.first, tree, tree.first))
    for _ in range(3):
        tree = Two(linear(), linear(4))
        found = f(tree)
        assert found[0] is tree.first
        assert found[1] is not tree and found[1].second is tree.second
        assert found[1].first is not tree.first and found[2] is not tree.first
        assert_same(found, (tree.first, tree, tree.first))
        # As with jax.jit, no two leaves of a result are one array.
        leaves = [leaf for leaf in jax.tree.leaves(found) if isinstance(leaf, jax.Array)]
        assert len({id(leaf) for leaf in leaves}) == len(leaves)


def test_the_wrapped_callable_itself() -> None:
    class Same(eqx.Module):
        weight: Any

        def __call__(self, x: jax.Array) -> Any:
            return self, self.weight * x

        def part(self, x: jax.Array) -> Any:
            return {"a": [self.weight]}, x

    model = Same(array(3))
    wrapper, of_part = filter_jit(model), filter_jit(model.part)
    for _ in range(3):
        assert wrapper(array(3))[0] is model
        assert of_part(array(3))[0]["a"][0] is model.weight


def test_the_arrays_of_numpy_come_back_as_those_of_jax() -> None:
    f = filter_jit(lambda tree, x: (tree, x + 1))
    for make in (array, np.ones, array, lambda n: np.float32(n)):
        tree = Pair(make(2), (array(1), "s"))
        found, _ = f(tree, array(2))
        is_of_jax = isinstance(tree.left, jax.Array)
        assert (found is tree) == is_of_jax
        assert isinstance(found.left, jax.Array) and found.right[0] is tree.right[0]
        np.testing.assert_array_equal(found.left, tree.left)


def test_other_shapes_and_other_results_of_one_key(traces: TraceCounter) -> None:
    @filter_jit
    def f(tree: Any) -> Any:
        traces.tick()
        return [tree.first, tree] if tree.first.weight.shape[0] == 2 else [tree, tree.second]

    big = Two(Layer(array(3, 3), array(3)), linear())
    for tree in (Two(linear(), linear(4)), big) * 3:
        found = f(tree)
        if tree is big:
            assert found[0] is tree and found[1] is not tree.second
        else:
            assert found[0] is tree.first and found[1] is not tree and found[1].second is tree.second
    assert traces.count == 2


def test_what_the_body_changes_is_not_given_back() -> None:
    def change(tree: Any) -> Any:
        object.__setattr__(tree.first, "weight", tree.first.bias)
        return tree, tree.second

    def swap(tree: Any) -> Any:
        first, second = tree.first, tree.second
        object.__setattr__(tree, "first", second)
        object.__setattr__(tree, "second", first)
        return tree

    def rename(tree: Any) -> Any:
        object.__setattr__(tree.first, "scale", 9)
        return tree

    for body in (change, swap, rename):
        f = filter_jit(body)
        for _ in range(3):
            tree = Two(linear(), linear(4))
            weight = tree.first.weight
            want = body(jax.tree.map(lambda x: x, tree))
            found = f(tree)
            assert found is not tree
            assert_same(found, want)
            assert tree.first.weight is weight and tree.first.scale == 2


NUMPY = [np.arange(3, dtype=np.float32), np.arange(3.0), np.arange(3), np.float64(1.5), np.int8(3), np.bool_(True)]
NUMPY += [np.ones((2, 0)), np.arange(6.0).reshape(2, 3).T, np.ones(2, jnp.bfloat16), np.arange(4, dtype=">f4")]


@pytest.mark.parametrize("x", NUMPY, ids=repr)
def test_numpy_inputs_come_out_as_from_jax_jit(x: Any) -> None:
    f = filter_jit(lambda x, y: {"x": x, "y": y + 1})
    try:
        expected = jax.jit(lambda x: x)(x)
    except TypeError as error:  # byte orders that jax refuses
        with pytest.raises(type(error)):
            f(x, array(1))
        return
    for _ in range(2):
        got = f(x, array(1))["x"]
        assert isinstance(got, jax.Array) and got is not x
        assert (got.dtype, got.weak_type) == (expected.dtype, expected.weak_type)
        assert got.sharding == expected.sharding and got.committed == expected.committed
        np.testing.assert_array_equal(got, expected)


def test_the_result_never_shares_memory_with_a_numpy_input() -> None:
    f = filter_jit(lambda x: x)
    for size in (1, 16, 1024, 2**16):
        numbers = np.arange(size, dtype=np.float32)
        out = f(numbers)
        numbers[:] = -1
        np.testing.assert_array_equal(out, np.arange(size))
