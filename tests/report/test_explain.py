"""Guards the promise that each trace is explained once, by the user's own paths, with the cause and no other."""

import functools
import gc
import logging
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import partax
from callables_made_anew import mutual
from conftest import TraceCounter
from meshes import mesh_of, on
from partax import filter_jit
from trees import Pair, array

Lines = Callable[..., list[str]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    """Explains; makes a call, and gives the lines since those of the last one, without the place."""
    with caplog.at_level(logging.WARNING, "partax"), partax.explain():

        def take(function: Any = None, *args: Any) -> list[str]:
            if function is not None:
                function(*args)
            messages = [record.getMessage() for record in caplog.records if record.name == "partax"]
            caplog.clear()
            return [message.split(" ", 1)[1] for message in messages]

        yield take


class Net(eqx.Module):
    weight: jax.Array
    activation: Any = eqx.field(static=True, default=None)
    width: int = eqx.field(static=True, default=3)


class Opaque:
    """Compared by identity, with a text that must be asked for."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


class ByValue(Opaque):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByValue) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def scale(alpha: Any) -> Callable[[Any], Any]:
    return lambda x: x * alpha


X = jnp.ones((2, 3))

# (before, now, the line): of one argument `a`. What the corpus has is not here again.
CHANGES: dict[str, tuple[Any, Any, str]] = {
    "runs of two": (list(range(100)), [*range(57), -1, -2, *range(59, 100)],
        "a[57]: static int 57 -> -1 (and 1 more static leaves of this sequence)"),
    "library function": (jnp.sin, np.cos, "a: PjitFunction of sin at jax/FILE:LINE -> function numpy.cos"),
    "static node": (partax.tree.Static("b"), partax.tree.Static("c"), "a: static Static('b') -> Static('c')"),
    "class of two modules": (np.float32, jnp.float32, "a: class numpy.float32 -> jax.numpy.float32"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_one_change_is_one_trace_and_one_line(case: str, lines: Lines, traces: TraceCounter) -> None:
    before, now, expected = CHANGES[case]

    @filter_jit
    def f(x: Any, a: Any) -> Any:
        traces.tick()
        return x + 1

    (line,) = [*lines(f, X, before), *lines(f, X, before)]
    assert line.startswith("f: trace 1, the first")
    (line,) = [*lines(f, X, now), *lines(f, X, now), *lines(f, X, before)]
    assert re.sub(r"\bjax/\S+:\d+", "jax/FILE:LINE", line) == "f: trace 2, because " + expected
    assert traces.count == 2


def test_the_line_names_the_call_of_the_user(caplog: pytest.LogCaptureFixture) -> None:
    @filter_jit
    def step(x: Any) -> Any:
        return jax.lax.map(lambda row: inner(row), x)

    @filter_jit
    def inner(x: Any) -> Any:
        return x + 1

    with caplog.at_level(logging.WARNING, "partax"), partax.explain():
        step(X)
    first = step.__wrapped__.__code__.co_firstlineno
    assert [(record.levelname, re.sub(r"^\S*/", "", record.getMessage())) for record in caplog.records] == [
        ("WARNING", f"test_explain.py:{first + 9} step: trace 1, the first"),
        ("WARNING", f"test_explain.py:{first + 2} inner: trace 1, the first"),
    ]


def test_nothing_is_said_of_hits_or_while_it_is_off(lines: Lines, traces: TraceCounter) -> None:
    @filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return x + 1

    lines(f, X)
    f(X)
    assert lines(f, np.ones((2, 3), np.float32)) == []
    with partax.explain(False):
        f(array(5))
    assert lines() == []
    assert lines(f, array(6)) == ["f: trace 3, because x: float32[5] -> float32[6]"]
    partax.explain(False)
    assert lines(f, array(7)) == [] and traces.count == 4
    partax.explain()
    f(array(8))
    assert len(lines()) == 1
    with pytest.raises(TypeError, match=r"explain: found a `function`, expected True or False"):
        partax.explain(lambda x: x)  # type: ignore[arg-type]


def test_the_difference_is_from_the_nearest_trace(lines: Lines) -> None:
    f = filter_jit(lambda x, y, n: x * n)
    f(array(2), array(2), 1)
    lines(f, array(3), array(3), 2)
    assert lines(f, array(2), array(3), 1) == ["<lambda>: trace 3, because y: float32[2] -> float32[3]"]
    assert lines(f, array(3), array(4), 2) == ["<lambda>: trace 4, because y: float32[3] -> float32[4]"]
    (line,) = lines(f, array(9), array(9), 9)
    assert line.count(";") == 2 and "x: " in line and "y: " in line and "n: static int" in line


def test_a_counter_is_counted_and_warned_of_once(lines: Lines, recwarn: pytest.WarningsRecorder) -> None:
    @filter_jit
    def f(x: Any, state: dict[str, int]) -> Any:
        return x

    for step in range(8):
        f(X, {"step": step})
    (warning,) = recwarn
    assert (warning.category, warning.filename) == (partax.RetraceWarning, __file__)
    advice = """pass jnp.asarray(state['step']), or dynamic=("state",)"""
    told = "3 values of the static Python number `state['step']` are a trace of `f` each"
    assert str(warning.message) == f"{told}; {advice}"
    assert lines()[1:] == [
        f"f: trace {i + 1}, because state['step']: static int {i - 1} -> {i} ({i + 1} traces so far"
        + (f": {advice})" if i == 1 else ")")  # what to do is said once
        for i in range(1, 8)
    ]


def test_numbers_that_change_together_are_warned_of_one_by_one(recwarn: pytest.WarningsRecorder) -> None:
    f = filter_jit(lambda x, step, rate: x)
    for step in range(5):
        f(X, step, 0.1 * step)
    assert [str(warning.message).split("`")[1] for warning in recwarn] == ["step", "rate"]


def test_meshes_that_differ_only_in_their_devices(
    lines: Lines, traces: TraceCounter, devices: list[jax.Device]
) -> None:
    @filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return x + 1, 1

    x = np.ones(8, np.float32)
    half, others, turned = (mesh_of(some) for some in (devices[:4], devices[4:], devices[3::-1]))
    meshes = half, others, turned, mesh_of(devices)
    _, *found, last = [line for mesh in meshes for line in lines(f, jax.device_put(x, on(mesh, "d")))]
    place = f"committed to {PartitionSpec('d')} of mesh {{'d': 4}}"
    assert found == [
        f"f: compiled again for trace 1, because x: {place} -> {place} on devices {numbers}"
        for numbers in ("4, 5, 6, 7", "3, 2, 1, 0")
    ]
    assert last == f"f: trace 2, because x: {place} -> {place.replace('4', '8')}"
    found = []
    for mesh in (half, others, half):
        with jax.set_mesh(mesh):
            found += lines(f, x)
    with jax.sharding.use_abstract_mesh(half.abstract_mesh):
        found += lines(f, x)
    assert "trace 3, because x: float32[8], mesh AbstractMesh('d': 8" in found.pop(0)
    assert traces.count == 3 and found == [
        "f: compiled again for trace 3, because jax.set_mesh: mesh {'d': 4} -> mesh {'d': 4} on devices 4, 5, 6, 7",
        "f: compiled again for trace 3, because jax.set_mesh: mesh {'d': 4} -> None",
    ]


def test_memories(lines: Lines, traces: TraceCounter, devices: list[jax.Device]) -> None:
    if len({memory.kind for memory in devices[0].addressable_memories()}) < 3:
        pytest.skip("these devices have no memories of several kinds")

    @filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return x + 1, 1

    def told(kind: str) -> list[str]:
        place = jax.sharding.SingleDeviceSharding(devices[0], memory_kind=kind)
        return lines(f, jax.device_put(np.ones(8, np.float32), place))

    told("device")
    assert told("pinned_host") == ["f: trace 2, because x: float32[8] -> float32[8] in host memory"]
    at = f"committed to {devices[0]}"
    assert told("unpinned_host") == [f"f: compiled again for trace 1, because x: {at} -> {at} in unpinned_host"]
    assert traces.count == 2


def test_python_is_not_traced_with_jit_disabled(lines: Lines) -> None:
    f = filter_jit(lambda x: x + 1)
    with jax.disable_jit():
        assert [*lines(f, X), *lines(f, X)] == []


def test_an_evicted_key_is_known_after_many_others_of_which_not_all_are_kept(lines: Lines) -> None:
    f = filter_jit(lambda x, name: x, cache_size=2)
    for i in range(300):
        f.eval_shape(1, f"key {i}")
    lines()
    (line,) = lines(f, 1, "key 0")
    assert "the key of trace 1, of the same arguments, was evicted: cache_size=2" in line
    gc.collect()
    assert len(f._cache.history.records) <= 256


TABLE = [iter("a")]


def test_a_re_created_function_that_reads_what_is_not_proven(lines: Lines) -> None:
    make = lambda: lambda x: (TABLE[0], x)[1]
    assert lines(filter_jit(make()), X) == ["<lambda>: trace 1, the first"]
    (line,) = lines(filter_jit(make()), X)
    assert line.startswith("<lambda>: trace 1, the first of function 2 of this code: <lambda> at ")
    assert "'TABLE[0]' (global of test_explain.py)" in line and line.endswith("cannot be proven unchanged")


def test_functions_inside_of_one_another_are_no_cause(lines: Lines) -> None:
    def nested(depth: int) -> Callable[[], Any]:
        around = lambda fun: functools.partial(lambda inner, x: inner(x), fun)
        return lambda: functools.reduce(lambda fun, _: around(fun), range(depth), mutual(2))

    def counting(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return x

    f, calls = filter_jit(lambda fun, x: fun(x)), 0
    for make in (nested(0), nested(12), nested(40), lambda: jax.jit(mutual(2)), lambda: counting):
        lines(f, make(), array(3))
        (line,) = lines(f, make(), array(4))
        assert line.endswith(", because x: float32[3] -> float32[4]")


def test_what_a_transformation_wraps_is_told_once(lines: Lines) -> None:
    f = filter_jit(lambda fun, x: fun(x))
    lines(f, jax.vmap(scale(2)), X[0])
    (line,) = lines(f, jax.vmap(scale(3)), X[0])
    assert line.count("'alpha'") == 1 and line.endswith("from 2 to 3") and line.count("was re-created") == 1


def test_what_was_traced_while_it_was_off_is_compared_and_no_repr_is_asked_for(lines: Lines) -> None:
    asked: list[int] = []

    class Silent:
        def __repr__(self) -> str:
            asked.append(1)
            raise RuntimeError("never")

    f = filter_jit(lambda x, fun, a: x)
    with partax.explain(False):
        f(X, scale(2), Silent())
        assert asked == []
    (line,) = lines(f, X, scale(3), Silent())
    assert line.startswith("<lambda>: trace 2, because fun: <lambda> at ")
    assert " is new (same code, closure cell 'alpha' 2 -> 3); a: " in line
    assert "<Silent whose repr raises RuntimeError>" in line


class Unequal:
    """Equal to nothing, with one text and one hash."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "Unequal"


class Slotted:
    """The same without weak references."""

    __slots__ = ()
    __eq__, __hash__, __repr__ = Unequal.__eq__, Unequal.__hash__, Unequal.__repr__


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Net(array(3), activation=Unequal()),
            "`net.activation` compares unequal to that of a trace, though its"),
        (lambda: {"a": [Net(array(3), activation=(1, Unequal()))]},
            "`net['a'][0].activation[1]` compares unequal to that of a trace, though its"),
        (lambda: Pair(Unequal(), Net(array(3), activation=Unequal())),
            "`net.left`, `net.right.activation` compare unequal to those of a trace, though text, type and hash"),
        (lambda: Net(array(3), activation=Slotted()),
            "`net.activation` compares unequal to that of a trace, though its"),
        (lambda: [Slotted(), np.dtype("float32"), Slotted()],
            "a static value (one of `net[0]`, `net[2]`) compares unequal to that of a trace"),
    ],
)  # fmt: skip
def test_the_place_of_a_value_that_compares_unequal(lines: Lines, make: Callable[[], Any], told: str) -> None:
    f = filter_jit(lambda net, x: x)
    for _ in range(2):
        f(make(), array(3))
    line = re.sub(r"trace \d+", "a trace", lines()[1])  # the function is one, and so are its traces
    assert line.startswith(f"<lambda>: a trace, because {told}")


def test_records_keep_nothing_alive(collect: Callable[[], None]) -> None:
    f = filter_jit(lambda net, value, fun: net, cache_size=1, reuse_equal_functions=False)
    alive: list[weakref.ref[Any]] = []
    with partax.explain():
        for i in range(10):
            x, value, by_value, fun = array(i + 1), Opaque("o"), ByValue(f"v{i}"), scale(i)
            net = Net(jnp.ones(i + 1), fun)
            f(net, (value, by_value), fun)
            alive += [weakref.ref(o) for o in (x, value, by_value, fun, net, net.weight)]
            del x, value, by_value, fun, net
    collect()
    assert sum(ref() is not None for ref in alive) <= 6  # those of the one key that is kept
    f.clear_cache()
    collect()
    assert [ref() for ref in alive] == [None] * 60


def test_the_warning_of_a_second_number_tells_how_to_trace_all(recwarn: pytest.WarningsRecorder) -> None:
    f = filter_jit(lambda x, step, rate: x)
    for value in range(4):
        f(X, value, 0.5)
        f(X, 0, float(value))
    first, second = (str(warning.message) for warning in recwarn)
    assert "is_array_like" not in first
    assert second.endswith("or dynamic=partax.is_array_like for all numbers of all arguments")


def test_numbers_that_come_back_and_other_causes_do_not_warn() -> None:
    f = filter_jit(lambda x, n, name="a": x, cache_size=1)
    for i in range(20):
        f(X, i % 2)
    assert f.cache_info().static_keys == 1
    g = filter_jit(lambda x, n, name="a": (x, n, name))
    for i in range(8):
        for arguments in ((jnp.ones(i), 1), (X, 1, str(i)), (X, i % 2), (X, bool(i % 2))):
            g(*arguments)


def test_the_warning_as_an_error_leaves_no_trace_behind(traces: TraceCounter) -> None:
    @filter_jit
    def f(x: Any, n: int) -> Any:
        traces.tick()
        return x

    f(X, 0)
    f(X, 1)
    with pytest.raises(partax.RetraceWarning):
        f(X, 2)
    assert traces.count == f.cache_info().traces == 2
    f(X, 2)
    assert traces.count == 3
