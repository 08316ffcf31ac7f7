"""Guards the promise that callables which mean the same are one static key, and that those which may not are two:
a function made anew does not retrace, and one whose closure, defaults, code or attributes changed does."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from callables_made_anew import local as scaled
from conftest import TraceCounter
from odd_values import Unhashable
from partax import _core, filter_jit
from trees import Layer, array, assert_same


def holding(held: Any) -> Any:
    return lambda x: (held, x)[1]


class Holder:
    """Compared by identity."""

    def __init__(self, scale: Any = 2) -> None:
        self.scale = scale

    def method(self, x: Any) -> Any:
        return x * self.scale


@pytest.fixture
def applied(traces: TraceCounter) -> Any:
    """A wrapper whose argument is the callable under test."""

    @filter_jit
    def apply(fun: Any, x: jax.Array) -> Any:
        traces.tick()
        return fun(x)

    return apply


def test_every_caller_gets_its_own_callable_back(traces: TraceCounter) -> None:
    @filter_jit
    def step(layer: Any, fun: Any, x: jax.Array) -> Any:
        traces.tick()
        return layer, [fun, x + 1], layer.activation

    for _ in range(3):
        layer, fun = Layer(array(2, 2), activation=scaled(2)), functools.partial(scaled(3))
        for _ in range(2):
            new, (returned, _), activation = step(layer, fun, array(2))
            assert new.activation is layer.activation is activation
            assert returned is fun
    assert traces.count == 1


# --- what is different


def test_the_globals_are_the_same_dictionary_or_the_functions_differ() -> None:
    source = "def make(n):\n    return lambda x: x * n + k\n"
    for i in range(50):  # dictionaries that die leave their addresses to the next
        space: dict[str, Any] = {"k": i}
        exec(source, space)
        if i == 0:
            step = filter_jit(lambda fun, x: fun(x))
        assert_same(step(space["make"](2), array(2)), array(2) * 2 + i)
        del space


def test_what_cannot_be_compared_inside_a_callable_is_no_error(applied: Any, traces: TraceCounter) -> None:
    class Hostile:
        def __eq__(self, other: object) -> bool:
            raise KeyError("eq")

        def __hash__(self) -> int:
            return 7

    endless: list[Any] = []
    endless.append(endless)

    for held in (Hostile(), Unhashable(), endless):
        before = traces.count
        for _ in range(2):
            first = holding(held)
            assert_same(applied(first, array(2)), array(2))
            assert_same(applied(first, array(2)), array(2))
        assert 1 <= traces.count - before <= 2
    for _ in range(2):
        assert_same(applied(holding(Hostile()), array(2)), array(2))


def test_deep_and_entangled_closures_end() -> None:
    def compose(depth: int) -> Any:
        fun = scaled(2)
        for _ in range(depth):
            fun = (lambda inner: lambda x: inner(x))(fun)
        return fun

    assert _core.static_equal(compose(50), compose(50))
    assert not _core.static_equal(compose(50), compose(51))
    deep = compose(5000)
    assert _core.static_equal(deep, deep) and _core.static_hash(deep) == _core.static_hash(deep)

    def entangled(n: int) -> Any:
        # Every function holds every other one.
        functions: list[Any] = []
        for i in range(n):
            functions.append(holding((i, functions)))
        return functions[0]

    assert _core.static_equal(entangled(30), entangled(30))
    assert not _core.static_equal(entangled(30), entangled(31))


# --- mutation between calls


# --- the option


def test_by_identity_each_object_is_its_own_key(traces: TraceCounter) -> None:
    @filter_jit(callables="identity")
    def step(fun: Any, x: jax.Array) -> Any:
        traces.tick()
        return fun(x)

    first, second = scaled(2), scaled(2)
    for fun in (first, second, first, second):
        assert_same(step(fun, array(2)), array(2) * 2)
    assert traces.count == 2
    for _ in range(2):
        filter_jit(lambda x: (traces.tick(), x)[1], callables="identity")(array(2))
    assert traces.count == 4


@pytest.mark.parametrize("wrong", ["structural", None, True])
def test_a_wrong_option_is_an_error_that_names_the_right_ones(wrong: Any) -> None:
    with pytest.raises(ValueError, match="'structure' or 'identity'"):
        filter_jit(lambda x: x, callables=wrong)


def test_what_the_callback_of_a_function_only_adds_to_is_its_own_record(traces: TraceCounter) -> None:
    log: list[Any] = []
    last: dict[str, int] = {}
    names: set[str] = set()
    count = 0

    @filter_jit
    def f(x: Any) -> Any:
        traces.tick()

        def note(value: Any) -> None:
            nonlocal count
            count += 1
            log.append(float(value))
            last["value"] = int(value)
            names.add(str(value))

        jax.debug.callback(note, x)
        return x

    for i in range(4):
        assert_same(f(jnp.float32(i)), jnp.float32(i))
        jax.effects_barrier()
        assert count == i + 1
    assert log == [0, 1, 2, 3] and last == {"value": 3} and len(names) == 4
    assert traces.count == 1


def test_a_function_that_is_changed_while_it_is_traced_is_known_by_identity() -> None:
    factors = [2]

    class Changes:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def __hash__(self) -> int:
            factors[0] = self.factor
            return 1

        def __eq__(self, other: object) -> bool:
            return type(other) is Changes and other.factor == self.factor

    def f(x: Any, key: Any) -> Any:
        return x * factors[0]

    ours, theirs = filter_jit(f), jax.jit(f, static_argnums=1)
    for key in (None, Changes(3), None):
        factors[0] = 2 if key is None else factors[0]
        assert_same(ours(array(2), key), theirs(array(2), key))
    factors[0] = 7
    for key in (None, Changes(3)):
        assert_same(ours(array(2), key), theirs(array(2), key))


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("change", ["another object", "a cell", "a default", "an attribute"])
def test_one_callable_in_several_places_is_looked_into_in_each_call(
    change: str, place: int, traces: TraceCounter
) -> None:
    """It is compared in one place of a call; a change of it, or another one in any place, is seen all the same."""
    content = [2.0]

    def make() -> Any:
        def fun(x: Any, factor: Any = 1.0) -> Any:
            return x * content[0] * factor + getattr(fun, "shift", 0)

        return fun

    def run(functions: Any, x: Any) -> Any:
        traces.tick()
        for function in functions:
            x = function(x)
        return x

    shared, f, x = make(), filter_jit(run), array(2)
    functions = [shared] * 4
    for _ in range(2):
        assert_same(f(functions, x), run(functions, x))
    before = traces.count = 1
    if change == "another object":
        functions[place] = scaled(3.0, 1.0)
    elif change == "a cell":
        content[0] = 5.0
    elif change == "a default":
        shared.__defaults__ = (7.0,)
    else:
        shared.shift = 1.0
    assert_same(f(functions, x), jax.jit(lambda x: [x := function(x) for function in functions][-1])(x))
    assert traces.count == before + 1
    f(functions, x)
    assert traces.count == before + 1
