"""Guards the promise that callables which mean the same are one static key, and that those which may not are two:
a function made anew does not retrace, and one whose closure, defaults, code or attributes changed does."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from callables_made_anew import local as scaled
from conftest import TraceCounter
from odd_values import Unhashable
from partax import _core, filter_jit
from trees import array, assert_same


def holding(held: Any) -> Any:
    return lambda x: (held, x)[1]


def test_the_globals_are_the_same_dictionary_or_the_functions_differ() -> None:
    source = "def make(n):\n    return lambda x: x * n + k\n"
    step = filter_jit(lambda fun, x: fun(x))
    for i in range(50):  # dictionaries that die leave their addresses to the next
        space: dict[str, Any] = {"k": i}
        exec(source, space)
        assert_same(step(space["make"](2), array(2)), array(2) * 2 + i)
        del space


def test_what_cannot_be_compared_inside_a_callable_is_no_error(traces: TraceCounter) -> None:
    class Hostile:
        def __eq__(self, other: object) -> bool:
            raise KeyError("eq")

        def __hash__(self) -> int:
            return 7

    endless: list[Any] = []
    endless.append(endless)
    step = filter_jit(lambda fun, x: (traces.tick(), fun(x))[1])
    for held in (Hostile(), Unhashable(), endless):
        before = traces.count
        for fun in (holding(held), holding(held)):
            for _ in range(2):
                assert_same(step(fun, array(2)), array(2))
        assert 1 <= traces.count - before <= 2


def test_deep_and_entangled_closures_end() -> None:
    def compose(depth: int) -> Any:
        fun = scaled(2)
        for _ in range(depth):
            fun = (lambda inner: lambda x: inner(x))(fun)
        return fun

    def entangled(n: int) -> Any:
        functions: list[Any] = []  # each of which holds all
        functions.extend(holding((i, functions)) for i in range(n))
        return functions[0]

    for make, size in ((compose, 50), (entangled, 30)):
        assert _core.static_equal(make(size), make(size))
        assert not _core.static_equal(make(size), make(size + 1))
    deep = compose(5000)
    assert _core.static_equal(deep, deep) and _core.static_hash(deep) == _core.static_hash(deep)


def test_by_identity_each_object_is_its_own_key(traces: TraceCounter) -> None:
    step = filter_jit(lambda fun, x: (traces.tick(), fun(x))[1], callables="identity")
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
        assert count == len(names) == i + 1 and last == {"value": i}
    assert log == [0, 1, 2, 3] and traces.count == 1


def test_what_a_hash_changes_before_the_trace_counts() -> None:
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

    ours = filter_jit(f)
    for begun, keys in ((2, (None, Changes(3), None)), (7, (None, Changes(3)))):
        for key in keys:
            factors[0] = begun if key is None else factors[0]
            assert_same(ours(array(2), key), f(array(2), key))


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("change", ["another object", "a cell", "a default", "an attribute"])
def test_one_callable_in_several_places_is_looked_into_in_each_call(
    change: str, place: int, traces: TraceCounter
) -> None:
    """It is compared in one place of a call; a change of it, or another one in any place, is seen all the same."""
    content = [2.0]

    def shared(x: Any, factor: Any = 1.0) -> Any:
        return x * content[0] * factor + getattr(shared, "shift", 0)

    def run(functions: Any, x: Any) -> Any:
        traces.tick()
        for function in functions:
            x = function(x)
        return x

    f, functions = filter_jit(run), [shared] * 4
    changes: dict[str, Callable[[], None]] = {
        "another object": lambda: functions.__setitem__(place, scaled(3.0, 1.0)),
        "a cell": lambda: content.__setitem__(0, 5.0),
        "a default": lambda: setattr(shared, "__defaults__", (7.0,)),
        "an attribute": lambda: setattr(shared, "shift", 1.0),
    }
    for count, change_it in ((1, lambda: None), (2, changes[change])):
        change_it()
        right = jax.jit(lambda x: [x := function(x) for function in functions][-1])(array(2))
        for _ in range(2):
            assert_same(f(functions, array(2)), right)
            assert traces.count == count
