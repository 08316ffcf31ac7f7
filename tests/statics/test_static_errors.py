"""What cannot be static is a TypeError that names the path and the type, with its cause chained."""

from __future__ import annotations

import array as c_arrays
import collections
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from partax import filter_jit
from trees import Bag, Cell, Layer, Model, Tray, array


class Value:
    """Equal by value, like its children below, each of which breaks one thing."""

    def __init__(self, name: str = "a") -> None:
        self.name = name

    def __eq__(self, other: object) -> Any:
        return isinstance(other, Value) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


class NoHash(Value):
    __hash__ = None  # type: ignore[assignment]


class BadHash(Value):
    def __hash__(self) -> int:
        raise ZeroDivisionError("no hash today")


class BadEq(Value):
    def __eq__(self, other: object) -> Any:
        raise ZeroDivisionError("no == today")

    __hash__ = Value.__hash__


class ArrayEq(Value):
    def __eq__(self, other: object) -> Any:
        return np.array([True, True])

    __hash__ = Value.__hash__


class BadEqNoHash(BadEq):
    __hash__ = None  # type: ignore[assignment]


def model_with(**fields: Any) -> Model:
    layer = Layer(array(2, 2))
    for name, value in fields.items():
        object.__setattr__(layer, name, value)  # Equinox itself only warns about arrays
    return Model([layer])


def type_error(f: Any, *args: Any, words: tuple[str, ...]) -> BaseException | None:
    """Calls and checks the message; returns the cause. The wrapper must work afterwards."""
    keys = f.cache_info().static_keys
    for _ in range(2):
        with pytest.raises(TypeError) as caught:
            f(*args)
        for word in words:
            assert word in str(caught.value)
        assert f.cache_info().static_keys == keys
    assert f(model_with(), 5)[1] == 5
    return caught.value.__cause__


ARRAYS = {
    "jax": (array(2), "ArrayImpl|Array"),
    "numpy": (np.arange(2.0), "ndarray"),
    "in a tuple": ((1, np.arange(2.0)), "ndarray"),
    "in a list": ([np.arange(2.0)], "ndarray"),
    "in a dict": ({"k": np.arange(2.0)}, "ndarray"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_as_static_value(name: str) -> None:
    scale, kind = ARRAYS[name]
    f = filter_jit(lambda model, n: (model.layers[0].weight, n))
    with pytest.raises(TypeError, match=kind):
        f(model_with(scale=scale), 1)
    type_error(f, model_with(scale=scale), 1, words=("model.layers[0].scale", "rray"))


def test_arrays_in_other_aux_data() -> None:
    f = filter_jit(lambda tree, n: (tree, n))
    numbers = np.arange(2.0)
    type_error(f, [Cell(array(2), mode=numbers)], 1, words=("tree[0].mode", "ndarray"))
    type_error(f, {"k": Bag(array(2), label=numbers)}, 1, words=("tree['k']", "ndarray"))
    type_error(f, (0, Tray(1, Tray(1, 2, label=numbers))), 1, words=("tree[1].bottom", "ndarray"))


@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda v: v, "model.layers[0].rate"),
        (lambda v: {"k": [0, v]}, "model.layers[0].rate['k'][1]"),
        (lambda v: Bag(1, v), "model.layers[0].rate["),
        (lambda v: Tray(v, 1), "model.layers[0].rate.top"),
    ],
)
@pytest.mark.parametrize("kind", [NoHash, BadHash])
def test_leaves_that_cannot_be_hashed(kind: type[Value], wrap: Any, path: str) -> None:
    f = filter_jit(lambda model, n: (model.layers[0].weight, n))
    cause = type_error(f, model_with(rate=wrap(kind())), 1, words=(path, kind.__name__))
    assert isinstance(cause, ZeroDivisionError if kind is BadHash else TypeError)
    cause = type_error(f, 0, kind(), words=("n", kind.__name__))
    assert isinstance(cause, ZeroDivisionError if kind is BadHash else TypeError)


@pytest.mark.parametrize("kind", [BadEq, ArrayEq])
@pytest.mark.parametrize("aux", [False, True])
def test_an_equality_that_does_not_answer(kind: type[Value], aux: bool) -> None:
    def make() -> Any:
        return model_with(**{"scale" if aux else "rate": kind()})

    f = filter_jit(lambda model, n: (model.layers[0].weight, n))
    assert f(make(), 1)[1] == 1
    path = f"model.layers[0].{'scale' if aux else 'rate'}"
    cause = type_error(f, make(), 1, words=(path, kind.__name__))
    assert isinstance(cause, ZeroDivisionError if kind is BadEq else (ValueError, type(None)))
    f.clear_cache()
    assert f(make(), 1)[1] == 1


def test_an_equality_of_unhashable_aux_data_that_raises() -> None:
    f = filter_jit(lambda tree, n: (tree, n))
    assert f([Bag(array(2), label=BadEqNoHash())], 1)[1] == 1
    args = ([Bag(array(2), label=BadEqNoHash())], 1)
    cause = type_error(f, *args, words=("tree[0]", "BadEqNoHash"))
    assert isinstance(cause, ZeroDivisionError)


def test_an_equality_that_raises_does_not_matter_for_the_same_object() -> None:
    f = filter_jit(lambda tree, n: (tree, n))
    value = BadEq()
    for _ in range(3):
        assert f([value], 1)[0][0] is value
    assert f.cache_info().static_keys == 1


def test_equalities_that_say_no_or_nothing_are_other_keys() -> None:
    class Nothing(Value):
        def __eq__(self, other: object) -> Any:
            return NotImplemented

        __hash__ = Value.__hash__

    f = filter_jit(lambda value: value)
    for value in (Nothing(), Nothing(), Value("b"), Value("c")):
        assert f(value) is value
    assert f.cache_info().static_keys == 4


def test_the_message_says_what_to_do() -> None:
    f = filter_jit(lambda model: model)
    with pytest.raises(TypeError) as caught:
        f(model_with(rate=NoHash()))
    assert "hash" in str(caught.value) and len(str(caught.value)) < 600
    with pytest.raises(TypeError) as caught:
        f(model_with(scale=np.zeros(1000)))
    assert "static" in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("method", ["__eq__", "__hash__"])
def test_interrupts_and_ends_of_memory_pass_as_they_are(raised: type[BaseException], method: str) -> None:
    class Raising(Value):
        on = False

        def __eq__(self, other: object) -> Any:
            self.act("__eq__")
            return super().__eq__(other)

        def __hash__(self) -> int:
            self.act("__hash__")
            return hash(self.name)

        def act(self, where: str) -> None:
            if Raising.on and where == method:
                raise raised

    f = filter_jit(lambda x, tree: x)
    x = array(2)
    for make in (lambda: [Raising()], lambda: Bag(label=(1, Raising()))):
        assert f(x, make()) is x
        Raising.on = True
        with pytest.raises(raised):
            f(x, make())
        Raising.on = False
        assert f(x, make()) is x


@pytest.mark.parametrize(
    "make",
    [
        lambda: type("Sub", (OrderedDict,), {})(a=1),
        lambda: type("Sub", (collections.deque,), {})([1]),
        lambda: type("Sub", (collections.Counter,), {})([1]),
        lambda: c_arrays.array("d", [1.0]),
        lambda: type("Sub", (c_arrays.array,), {})("d"),
    ],
)
def test_state_out_of_reach_without_a_hash_is_refused_with_its_path(make: Callable[[], Any]) -> None:
    model = model_with(scale=make())
    with pytest.raises(TypeError, match=r"model\.layers\[0\]\.scale"):
        filter_jit(lambda model: model.layers)(model)
