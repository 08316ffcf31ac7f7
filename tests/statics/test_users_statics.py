"""Guards the promise that static values of a user's class are compared as the class says, refused with their path where
they cannot be, and that a result carries the very objects of its own call."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from conftest import TraceCounter
from partax import filter_jit
from random_trees import EXAMPLES
from trees import Colour, Pair, array, assert_same

# --- what comes back is this call's own


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any
    note: Any = dataclasses.field(default=None, compare=False)


class Equal:
    """Equal to all of its class, and each its own."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Equal

    def __hash__(self) -> int:
        return 1

    def method(self) -> None: ...


class Module(eqx.Module):
    weight: Any
    static: Any = eqx.field(static=True)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
    weight: Any
    static: Any = dataclasses.field(metadata={"static": True})


class Node:
    def __init__(self, weight: Any, static: Any) -> None:
        self.weight, self.static = weight, static


jax.tree_util.register_pytree_node(
    Node, lambda node: ((node.weight,), node.static), lambda static, children: Node(children[0], static)
)


def text() -> str:
    return "".join(["a ", "text"])


def function() -> Any:
    held = text()
    return lambda x: (x, held)[0]


# An equal value made anew; what in it must be the very object.
OWN: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "object": (Equal, lambda v: v),
    "text": (text, lambda v: v),
    "function": (function, lambda v: v),
    "number": (lambda: 10**30 + 1, lambda v: v),
    "in a tuple": (lambda: (1, (Equal(),)), lambda v: v[1][0]),
    "tuple": (lambda: (1, (Equal(),)), lambda v: v),
    "text in a tuple": (lambda: (1, (text(),)), lambda v: v[1][0]),
    "function in a tuple": (lambda: ((function(),),), lambda v: v[0][0]),
    "in a NamedTuple": (lambda: Pair(1, Pair(Equal(), 2)), lambda v: v.right.left),
    "in a frozen dataclass": (lambda: Frozen(Frozen(Equal())), lambda v: v.value.value),
    "frozen dataclass": (lambda: Frozen(1), lambda v: v),
    "in a field that does not compare": (lambda: Frozen(1, Equal()), lambda v: v.note),
    "array in a field that does not compare": (lambda: Frozen(1, np.ones(2)), lambda v: v.note),
    "in a partial": (lambda: functools.partial(max, Equal(), key=function()), lambda v: [v.args[0], v.keywords["key"]]),
    "partial": (lambda: functools.partial(max, Equal()), lambda v: v),
    "partial in a tuple": (lambda: (functools.partial(max, 1),), lambda v: v[0]),
    "method": (lambda: Equal().method, lambda v: v.__self__),
    "method in a tuple": (lambda: (Equal().method,), lambda v: v[0].__self__),
    "list": (lambda: [1, [2]], lambda v: v),
    "dict": (lambda: {"a": {"b": text()}}, lambda v: [v, v["a"]]),
    "set": (lambda: {1, 2}, lambda v: v),
    "OrderedDict": (lambda: OrderedDict(b=1, a=2), lambda v: v),
    "defaultdict": (lambda: defaultdict(list, a=1), lambda v: v),
    "list in a tuple": (lambda: (1, [2]), lambda v: v),
    "dict in a frozen dataclass": (lambda: Frozen({"a": 1}), lambda v: v),
    "frozen dataclass in a tuple in a partial": (lambda: functools.partial(max, (Frozen(Equal()),)), lambda v: v.args),
}
CARRIERS: dict[str, Callable[[Any], Any]] = {
    "Equinox module": lambda static: Module(array(2), static),
    "registered dataclass": lambda static: Registered(array(2), static),
    "registered node": lambda static: Node(array(2), static),
    "nested": lambda static: {"a": [Module(Registered(array(2), static), static)]},
}
FIND: dict[str, Callable[[Any], Any]] = {
    "Equinox module": lambda tree: tree.static,
    "registered dataclass": lambda tree: tree.static,
    "registered node": lambda tree: tree.static,
    "nested": lambda tree: [tree["a"][0].static, tree["a"][0].weight.static],
}


def assert_own(carrier: str, inside: Callable[[Any], Any], given: Any, returned: Any) -> None:
    for mine, theirs in zip(*(_all(FIND[carrier](tree)) for tree in (given, returned)), strict=True):
        for ours, owners in zip(_all(inside(theirs)), _all(inside(mine)), strict=True):
            assert ours is owners
    assert jax.tree.structure(returned) == jax.tree.structure(given)


def _all(value: Any) -> list[Any]:
    return value if type(value) is list else [value]


@pytest.mark.parametrize("carrier", CARRIERS.keys())
@pytest.mark.parametrize("kind", OWN.keys())
def test_a_result_carries_the_objects_of_its_own_call(kind: str, carrier: str) -> None:
    make, inside = OWN[kind]
    step = filter_jit(lambda tree: tree)
    first, second = CARRIERS[carrier](make()), CARRIERS[carrier](make())
    for tree in (first, second, first, second, CARRIERS[carrier](make())):
        assert_own(carrier, inside, tree, step(tree))


@pytest.mark.parametrize("kind", OWN.keys())
def test_lowered_and_evaluated_results_carry_their_own_objects(kind: str) -> None:
    make, inside = OWN[kind]
    step = filter_jit(lambda tree: jax.tree.map(lambda x: x + 1, tree))
    step(Module(array(2), make()))
    first = Module(array(2), make())
    compiled = step.lower(first).compile()
    assert_own("Equinox module", inside, first, compiled(first))
    for _ in range(3):
        tree = Module(array(2), make())
        assert_own("Equinox module", inside, tree, step.eval_shape(tree))
        assert_own("Equinox module", inside, tree, step(tree))
        tree = Module(array(3), tree.static)  # another shape of the key
        assert_own("Equinox module", inside, tree, step(tree))


def test_what_a_result_holds_in_an_object_of_its_own_is_that_of_its_call() -> None:
    step = filter_jit(lambda x, held: (x, lambda: held))
    first, second = Equal(), Equal()
    for held in (first, second, first, second):
        assert step(array(2), held)[1]() is held


@pytest.mark.parametrize("kind", [frozenset, set])
def test_an_item_of_a_set_is_that_item_in_whatever_order_equal_sets_have_theirs(kind: Callable[..., Any]) -> None:
    red = filter_jit(lambda held, x: (next(item for item in held if item is Colour.RED), x + 1))
    for _ in range(50):
        # The hash of a NaN is its address, and so is its place.
        items = kind([float("nan"), Colour.RED, Colour.BLUE])
        assert red(items, jnp.float32(1))[0] is Colour.RED


# --- hostile objects


def raising(error: type[BaseException]) -> Any:
    def method(self: Any, *args: Any) -> Any:
        raise error("hostile")

    return method


ERRORS = [KeyError, ValueError, RuntimeError, TypeError, ZeroDivisionError, StopIteration, AssertionError]
METHODS = ["__getattr__", "__len__", "items", "__iter__", "__bool__", "__repr__", "__str__", "__dir__", "keys"]
METHODS += ["__contains__", "__getitem__", "__call__", "__index__", "__format__", "__reduce_ex__", "__array__"]
METHODS += ["__class__", "__wrapped__", "__dict__"]
# With more examples each method raises each.
RAISED = [
    pytest.param(method, error, explained, id=f"{method}-{error.__name__}{'-explained' * explained}")
    for i, method in enumerate(METHODS)
    for error in (ERRORS if EXAMPLES > 100 else [ERRORS[(i + step) % 7] for step in (0, 3)])
    for explained in ((False, True) if EXAMPLES > 100 else (ERRORS.index(error) % 2 == 0,))
]


@pytest.mark.parametrize(("method", "error", "explained"), RAISED)
def test_an_object_whose_methods_raise(method: str, error: Any, explained: bool) -> None:
    entry = property(raising(error)) if method in ("__class__", "__wrapped__", "__dict__") else raising(error)
    hostile = type("Hostile", (), {"n": 2.0, method: entry})()
    x = array(2)

    def argument(x: Any, held: Any) -> Any:
        return x * held.n

    def closed(held: Any) -> Any:
        return lambda x: x * held.n

    globals()["HOSTILE"] = hostile
    with partax.explain(explained):
        for _ in range(2):
            assert_same(filter_jit(argument)(x, hostile), jax.jit(argument, static_argnums=1)(x, hostile))
            assert_same(filter_jit(closed(hostile))(x), x * 2)
            assert_same(filter_jit(lambda x: x * HOSTILE.n)(x), x * 2)  # noqa: F821
            assert_same(filter_jit(lambda x, held=hostile: x * held.n)(x), x * 2)


# --- a class that compares itself


@pytest.fixture
def scaled(traces: TraceCounter) -> Any:
    """A wrapper that reads an attribute of a static argument."""

    @filter_jit
    def scale(x: Any, held: Any) -> Any:
        traces.tick()
        return x * held.k

    return scale


def comparing(base: type) -> type:
    def eq(self: Any, other: Any) -> Any:
        return type(self) is type(other) and self.k == other.k

    return type(f"Own_{base.__name__}", (base,), {"__eq__": eq, "__hash__": lambda self: hash(self.k)})


CONTENT: dict[type, tuple[Any, ...]] = {
    dict: ({"a": 1},),
    OrderedDict: ({"a": 1},),
    list: ([1],),
    set: ({1},),
    frozenset: ({1},),
    tuple: ((1,),),
    int: (1,),
    str: ("a",),
    float: (1.0,),
    complex: (1j,),
    bytes: (b"a",),
    bytearray: (b"a",),
    functools.partial: (max, 1),
    object: (),
}


@pytest.mark.parametrize("base", CONTENT.keys())
def test_a_subclass_with_its_own_equality_is_compared_by_it(base: type, scaled: Any, traces: TraceCounter) -> None:
    cls = comparing(base)

    def make(k: float, other: float) -> Any:
        value = cls(*CONTENT[base])
        value.k, value.other = k, other
        return value

    for k, other, count in [(2.0, 1, 1), (3.0, 1, 2), (2.0, 2, 2), (3.0, 3, 2), (2, 1, 2)]:
        assert_same(scaled(array(2), make(k, other)), array(2) * float(k))
        assert traces.count == count


@pytest.mark.parametrize("slots", [False, True], ids=["", "slots"])
@pytest.mark.parametrize("base", [base for base in CONTENT if base not in (object, OrderedDict)])
def test_a_subclass_without_equality_is_compared_by_content_and_attributes(
    base: type, slots: bool, scaled: Any, traces: TraceCounter
) -> None:
    if slots and base in (int, tuple, bytes):
        pytest.skip("such a class has no slots")
    cls = type("Plain", (base,), {"__slots__": ("k",)} if slots else {})

    def make(k: float) -> Any:
        value = cls(*CONTENT[base])
        value.k = k
        return value

    for k, count in [(2.0, 1), (3.0, 2), (2.0, 2), (3.0, 2), (True, 3)]:
        for _ in range(2):
            assert_same(scaled(array(2), make(k)), array(2) * float(k))
        assert traces.count == count


class Odd:
    def __init__(self, truth: bool) -> None:
        self.truth = truth

    def __bool__(self) -> bool:
        return self.truth


@pytest.mark.parametrize(
    "truth", [bool, int, np.bool_, Odd, lambda b: "yes" if b else "", lambda b: [1] if b else [], jnp.asarray]
)
def test_an_equality_may_answer_with_any_truth_value(
    truth: Callable[[bool], Any], scaled: Any, traces: TraceCounter
) -> None:
    class Key:
        def __init__(self, k: float) -> None:
            self.k = k

        def __eq__(self, other: object) -> Any:
            return truth(isinstance(other, Key) and self.k == other.k)

        def __hash__(self) -> int:
            return 1

    for k, count in [(2.0, 1), (3.0, 2), (2.0, 2), (3.0, 2)]:
        assert_same(scaled(array(2), Key(k)), array(2) * k)
        assert traces.count == count


SOURCES = {
    "only one field": "return isinstance(other, C) and self.k == other.k",
    "by its class": "return type(other) is type(self) and (self.k,) == (other.k,)",
    "by a text": "return repr(self.k) == repr(getattr(other, 'k', None))",
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_a_handwritten_equality_of_a_dataclass_counts(source: str, scaled: Any, traces: TraceCounter) -> None:
    space: dict[str, Any] = {"dataclasses": dataclasses, "__name__": "__main__"}
    code = "@dataclasses.dataclass(frozen=True)\nclass C:\n k: float\n other: object\n"
    code += f" def __eq__(self, other):\n  {source}\n"
    exec(code + " def __hash__(self): return 1\n", space)

    for k, other, count in [(2.0, [1], 1), (2.0, {}, 1), (3.0, 1, 2), (2.0, np.ones(2), 2)]:
        assert_same(scaled(array(2), space["C"](k, other)), array(2) * k)
        assert traces.count == count


@pytest.mark.parametrize("inside", [lambda v: v, lambda v: (v,), lambda v: Frozen(v), lambda v: Pair(1, v)])
def test_a_field_that_does_not_compare_does_not_count(inside: Callable[[Any], Any], traces: TraceCounter) -> None:
    @filter_jit
    def step(tree: Any) -> Any:
        traces.tick()
        return tree.weight + 1

    for note in ("a", "b", np.ones(2), {1, 2}, [1], object(), comparing(dict)):
        assert_same(step(Module(array(2), inside(Frozen(1, note)))), array(2) + 1)
    assert traces.count == 1
    step(Module(array(2), inside(Frozen(True))))
    assert traces.count == 2


@pytest.mark.parametrize("holder", [lambda it: it, lambda it: (it, 1), lambda it: {"a": it}, Pair])
def test_an_object_that_is_changed_in_place_counts_for_new_shapes_as_it_is(holder: Any) -> None:
    class Own:
        def __init__(self, k: int) -> None:
            self.k = k

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.k == other.k

        def __hash__(self) -> int:
            return self.k

    own = Own(2)
    held = holder(own) if holder is not Pair else Pair(own, own)
    step = filter_jit(lambda x, held: x * own.k)
    theirs = jax.jit(lambda x, own: x * own.k, static_argnums=1)
    for k, size in ((2, 2), (3, 3), (4, 4)):
        own.k = k
        assert_same(step(array(size), held), theirs(array(size), own))


def test_a_subclass_of_a_frozen_dataclass_has_its_own_rules(traces: TraceCounter) -> None:
    class Plain(Frozen): ...

    class Own(Frozen):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 1

    @dataclasses.dataclass(frozen=True)
    class More(Frozen):
        more: float = 1.0

    @filter_jit
    def step(x: Any, held: Any) -> Any:
        traces.tick()
        return x * getattr(held, "more", 1.0)

    counts = []
    for held in (Plain(1), Plain(1, 2), Plain(2), Own(1), Own(2), More(1, 2, 3.0), More(1, 1, 3.0), More(1, 1, 4.0)):
        assert_same(step(array(2), held), array(2) * getattr(held, "more", 1.0))
        counts.append(traces.count)
    assert counts == [1, 1, 2, 3, 3, 4, 4, 5]
