"""Guards the promise that static results are those of the trace, as in Equinox: containers are fresh copies, what is an
argument's static value is the call's own, and no other function's calls get an object that one has returned; and
that a part of an argument that comes back unchanged is that part itself, without a copy, and nothing else is."""

import dataclasses
import itertools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partax
from conftest import TraceCounter
from partax import filter_jit
from trees import Bag, Cell, Layer, Pair, array, assert_same

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose


class Equal:
    """All of these are equal, and yet each is one of its own."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Equal

    def __hash__(self) -> int:
        return 1


class Config:
    def __init__(self, rate: float = 0.5) -> None:
        self.rate = rate


class Module(eqx.Module):
    value: Any


class OnlyStatic(eqx.Module):
    value: Any = eqx.field(static=True)


CONFIG = Config()

# What changes a result, of which each call gets its own.
CHANGEABLE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Any]] = {
    "list": (lambda: [1], lambda it: it.append(2), [1]),
    "set": (lambda: {1}, lambda it: it.add(2), {1}),
    "dict": (lambda: {"a": 1}, lambda it: it.update(a=2), {"a": 1}),
    "list in a tuple": (lambda: (1, [1]), lambda it: it[1].append(2), (1, [1])),
}


@pytest.mark.parametrize(("make", "change", "expected"), CHANGEABLE.values(), ids=CHANGEABLE)
@pytest.mark.parametrize("hold", [Module, OnlyStatic])
def test_what_a_caller_changes_no_other_call_gets(hold: Any, make: Any, change: Any, expected: Any) -> None:
    f = filter_jit(lambda x: (x + 1, make(), hold(make())))
    for _ in range(3):
        _, value, holder = f(array(2))
        assert value == holder.value == expected
        change(value)
        change(holder.value)


# What a function returns that is no array, and no argument's.
RETURNED: dict[str, Callable[[], Any]] = {
    "a global object": lambda: CONFIG,
    "an object of its own": Config,
    "a function": lambda: lambda x: x,
    "a class": lambda: Config,
    "a state of Equinox": lambda: eqx.nn.State({"model": eqx.nn.StateIndex(jnp.ones(2))}),
}


@pytest.mark.parametrize("make", RETURNED.values(), ids=RETURNED)
@pytest.mark.parametrize("jit", [filter_jit, partax.nnx.jit, eqx.filter_jit])
def test_a_returned_object_is_that_of_the_only_trace(jit: Any, make: Any, traces: TraceCounter) -> None:
    f = jit(lambda x: (traces.seen(x) + 1, make()))
    results = [jax.tree.leaves(f(array(2))[1], is_leaf=lambda it: not isinstance(it, eqx.nn.State)) for _ in range(3)]
    assert traces.count == 1
    for one, other in itertools.pairwise(results):
        assert all(a is b or isinstance(a, jax.Array) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("hold", [lambda it: it, OnlyStatic])
def test_an_argument_comes_back_as_the_calls_own(hold: Any, traces: TraceCounter) -> None:
    f = partax.nnx.jit(lambda a, x: (hold(a), traces.seen(x)))
    objects = Equal(), Equal()
    for own in (*objects, *objects):
        held = f(own, array(2))[0]
        assert (held.value if hold is OnlyStatic else held) is own
    assert traces.count == 1


def test_a_function_made_again_whose_results_hold_no_object_is_traced_once(traces: TraceCounter) -> None:
    def make(n: int) -> Any:
        def f(x: Any) -> Any:
            traces.tick()
            model = eqx.nn.Lambda(lambda x: x * n)
            return model, jax.nn.relu, jnp.sin, "text", n, None, object, (1, 2), [n], lambda: n, jnp.float32

        return filter_jit(f)

    for n in (300_000, 300_000, 300_001, 300_000):
        assert make(n)(array(2))[4] == n
    assert traces.count == 2


# ---- Parts of arguments.


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Frozen:
    weight: Any
    mode: Any = dataclasses.field(default="same", metadata={"static": True})


class Two(eqx.Module):
    first: Any
    second: Any
    rate: Any = eqx.field(static=True, default=0.5)


def linear(start: float = 0.0) -> Layer:
    return Layer(array(2, 2, start=start), array(2, start=start))


IMMUTABLE: dict[str, Callable[[], Any]] = {
    "module": linear,
    "tuple": lambda: (array(2), "s", None, 3),
    "named tuple": lambda: Pair(array(2), 1.5),
    "frozen dataclass": lambda: Frozen(array(2), mode=("a", 1)),
    "nested": lambda: Two(Pair((array(1), 1), Frozen(linear())), (None, (array(2), ("x", jnp.tanh)))),
    "optax state": lambda: optax.adam(1e-3).init({"w": array(2)})[1:],
    "no arrays": lambda: Two("a", (1, None, "b")),
    "key": lambda: Pair(jax.random.key(0), jnp.ones((), jnp.bfloat16)),
}
REBUILT: dict[str, Callable[[], Any]] = {
    "list": lambda: [array(2)],
    "ordered dict": lambda: OrderedDict(a=array(2)),
    "dataclass": lambda: Cell(array(2)),
    "registered": lambda: Bag(array(2)),
    "list in a tuple": lambda: (array(2), [array(1)]),
    "dict in a module": lambda: Two({"a": array(1)}, array(2)),
    "list in a module's statics": lambda: Two(array(1), array(2), rate=(1, [2])),
    "wrapped module": lambda: eqx.filter_jit(linear()),
}


@pytest.mark.parametrize("make", IMMUTABLE.values(), ids=IMMUTABLE)
def test_what_cannot_change_is_the_argument_itself(make: Callable[[], Any], traces: TraceCounter) -> None:
    f = filter_jit(lambda tree, x: (traces.seen(x) + 1, {"a": [tree]}))
    for i in range(4):
        tree = make()
        found = f(tree, array(2))
        assert_same(found, (array(2) + 1, {"a": [tree]}))
        assert found[1]["a"][0] is tree, i
    assert traces.count == 1


@pytest.mark.parametrize("make", REBUILT.values(), ids=REBUILT)
def test_what_may_change_is_made_anew(make: Callable[[], Any]) -> None:
    f = filter_jit(lambda tree, x: (tree, x + 1))
    for _ in range(3):
        tree = make()
        found = f(tree, array(2))[0]
        assert found is not tree and type(found) is type(tree)
        assert all(a is b for a, b in zip(*map(jax.tree.leaves, (tree, found)), strict=True))


class Same(eqx.Module):
    weight: Any

    def __call__(self, x: jax.Array) -> Any:
        return self, self.weight * x


def test_the_wrapped_callable_itself() -> None:
    model = Same(array(3))
    for _ in range(3):
        assert filter_jit(model)(array(3))[0] is model


def _change(tree: Any) -> Any:
    object.__setattr__(tree.first, "weight", tree.first.bias)
    return tree, tree.second


def test_what_the_body_changes_is_not_returned_as_the_argument() -> None:
    f = filter_jit(_change)
    for _ in range(3):
        tree = Two(linear(), linear(4))
        weight = tree.first.weight
        result = f(tree)
        assert result is not tree
        assert_same(result, _change(jax.tree.map(lambda x: x, tree)))
        assert tree.first.weight is weight


NUMPY = [np.arange(3, dtype="f4"), np.arange(3.0), np.bool_(True), np.ones(2, jnp.bfloat16)]
NUMPY += [np.arange(6.0).reshape(2, 3).T, np.arange(1 << 16, dtype="f4")]


@pytest.mark.parametrize("x", NUMPY, ids=lambda x: f"{x.dtype} {x.shape}")
def test_numpy_inputs_come_out_as_from_jax_jit(x: Any) -> None:
    f = filter_jit(lambda x, y: {"x": x, "y": y})
    expected, y = jax.jit(lambda x: x)(x), Pair(array(1), "s")
    for _ in range(2):
        given = x.copy("K")
        found = f(Pair(given, y), array(1))["x"]
        if given.ndim > 0:
            given[...] = 0  # no memory is shared
        got = found.left
        assert isinstance(got, jax.Array) and found.right.left is y.left
        assert (got.dtype, got.weak_type) == (expected.dtype, expected.weak_type)
        assert got.sharding == expected.sharding and got.committed == expected.committed
        np.testing.assert_array_equal(got, expected)
