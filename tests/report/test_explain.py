"""Guards the promise that each trace is explained once, by the user's own paths, with the cause and no other."""

from __future__ import annotations

import functools
import gc
import logging
import re
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import partax
from conftest import TraceCounter
from partax import filter_jit
from processes import python
from trees import Bag, Pair, array

MEMORIES = ("device", "pinned_host", "unpinned_host")


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


HERE = "test_explain.py"
X = jnp.ones((2, 3))
one, two = Opaque("<one>"), Opaque("<two>")
double, triple = scale(2), scale(3)

# (before, now, the line): of one argument `a`, beside an array that stays. What the corpus has is not here again.
CHANGES: dict[str, tuple[Any, Any, str]] = {
    "numpy dtype": (np.ones(3, np.float32), np.ones(3, np.int8), "a: float32[3] -> int8[3]"),
    "below": ({"b": [jnp.ones(3)]}, {"b": [jnp.ones(4)]}, "a['b'][0]: float32[3] -> float32[4]"),
    "array and number": (jnp.ones(()), 1.0, "a: float32 -> static float 1.0"),
    "runs of two": (list(range(100)), [*range(57), -1, -2, *range(59, 100)],
        "a[57]: static int 57 -> -1 (and 1 more static leaves of this sequence)"),
    "aux tuple": (Bag(X, label=("b", 1)), Bag(X, label=("b", 2)),
        "a.<aux data>[1]: static int 1 -> 2 (2 traces so far: it is aux data of `a`: "
        "make it a child that is an array)"),
    "library function": (jnp.sin, np.cos, "a: PjitFunction of sin at jax/FILE:LINE -> function numpy.cos"),
    "identity": (one, two, "a: static <one> -> <two>"),
    "static node": (partax.Static("b"), partax.Static("c"), "a: static Static('b') -> Static('c')"),
    "static node or leaf": (partax.Static("b"), "b", "a: static Static('b') -> static str 'b'"),
    "class of two modules": (np.float32, jnp.float32, "a: class numpy.float32 -> jax.numpy.float32"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_one_change_is_one_trace_and_one_line(case: str, lines: Lines, traces: TraceCounter) -> None:
    before, now, expected = CHANGES[case]

    @filter_jit
    def f(x: Any, a: Any) -> Any:
        traces.tick()
        return x + 1

    f(X, before)
    (line,) = lines(f, X, before)
    assert line.startswith("f: trace 1, the first") and traces.count == 1
    f(X, now)
    f(X, now)
    f(X, before)
    assert traces.count == 2
    (line,) = lines()
    line = re.sub(r"\bjax/\S+:\d+", "jax/FILE:LINE", line)
    assert line == "f: trace 2, because " + expected


def test_the_line_names_the_call_of_the_user(caplog: pytest.LogCaptureFixture) -> None:
    @filter_jit
    def step(x: Any) -> Any:
        return jax.lax.map(lambda row: inner(row), x)

    @filter_jit
    def inner(x: Any) -> Any:
        return x + 1

    with caplog.at_level(logging.WARNING, "partax"), partax.explain():
        step(X)
    messages = [record.getMessage() for record in caplog.records if record.name == "partax"]
    first = step.__wrapped__.__code__.co_firstlineno
    assert [re.sub(r"^\S*/", "", m) for m in messages] == [
        f"{HERE}:{first + 9} step: trace 1, the first",
        f"{HERE}:{first + 2} inner: trace 1, the first",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_nothing_is_said_of_hits_or_while_it_is_off(lines: Lines, traces: TraceCounter) -> None:
    @filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return x + 1

    lines(f, X)
    for _ in range(3):
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


def test_a_counter_is_counted_and_warned_of_once(lines: Lines) -> None:
    @filter_jit
    def f(x: Any, state: dict[str, int]) -> Any:
        return x

    for step in range(2):
        f(X, {"step": step})
    with pytest.warns(partax.RetraceWarning) as caught:
        f(X, {"step": 2})
    (warning,) = caught
    assert warning.filename == __file__
    told = "3 values of the static Python number `state['step']` are a trace of `f` each; pass "
    assert str(warning.message) == f"""{told}jnp.asarray(state['step']), or trace=("state",)"""
    for step in range(3, 8):
        f(X, {"step": step})  # a second warning would be an error
    advice = """: pass jnp.asarray(state['step']), or trace=("state",)"""
    # What to do is said once.
    assert lines()[1:] == [
        f"f: trace {i + 1}, because state['step']: static int {i - 1} -> {i} ({i + 1} traces so far{advice * (i == 1)})"
        for i in range(1, 8)
    ]


def test_meshes_that_differ_only_in_their_devices(
    lines: Lines, traces: TraceCounter, devices: list[jax.Device]
) -> None:
    @filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return x + 1, 1

    some = (devices[:4], devices[4:], devices[3::-1])
    half, others, turned = (jax.sharding.Mesh(np.array(part), ("d",)) for part in some)
    shuffled = jax.sharding.Mesh(np.array(devices)[[0, 2, 4, 6, 1, 3, 5, 7]], ("d",))
    swapped = jax.sharding.Mesh(np.array(devices)[[0, 2, 4, 6, 1, 3, 7, 5]], ("d",))
    text = f"{PartitionSpec('d')} of mesh {{'d': 4}}"
    found: list[str] = []
    for mesh in (half, others, turned):
        found += lines(f, jax.device_put(np.ones(8, np.float32), NamedSharding(mesh, PartitionSpec("d"))))
    because = "f: compiled again for trace 1, because x: committed to"
    assert found[1:] == [
        f"{because} {text} -> committed to {text} on devices 4, 5, 6, 7",
        f"{because} {text} -> committed to {text} on devices 3, 2, 1, 0",
    ]
    found = []
    for mesh in (shuffled, swapped):
        found += lines(f, jax.device_put(np.ones(8, np.float32), NamedSharding(mesh, PartitionSpec("d"))))
    assert "on devices 0, 2, 4, 6, 1, 3, 5, 7" in found[0] and "on devices 0, 2, 4, 6, 1, 3, 7, 5" in found[1]
    assert traces.count == 2

    x = np.ones(8, np.float32)
    found = []
    for mesh in (half, others, half):
        with jax.set_mesh(mesh):
            f(x)
        found += lines()
    with jax.sharding.use_abstract_mesh(half.abstract_mesh):
        found += lines(f, x)
    assert found[1:] == [
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

    usual, pinned, host = (jax.sharding.SingleDeviceSharding(devices[0], memory_kind=kind) for kind in MEMORIES)
    lines(f, jax.device_put(np.ones(8, np.float32), usual))
    assert lines(f, jax.device_put(np.ones(8, np.float32), pinned)) == [
        "f: trace 2, because x: float32[8] -> float32[8] in host memory"
    ]
    f(jax.device_put(np.ones(8, np.float32), host))
    at = f"committed to {devices[0]}"
    assert lines() == [f"f: compiled again for trace 1, because x: {at} -> {at} in unpinned_host"]
    assert traces.count == 2


def test_python_is_not_traced_with_jit_disabled(lines: Lines) -> None:
    f = filter_jit(lambda x: x + 1)
    with jax.disable_jit():
        f(X)
        f(X)
    assert lines() == []


def test_an_evicted_key_is_known_after_many_others(lines: Lines) -> None:
    f = filter_jit(lambda x, name: x, cache_size=2)
    f(1, "key 0")
    for i in range(1, 300):
        f.eval_shape(1, f"key {i}")
    lines()
    (line,) = lines(f, 1, "key 0")
    assert "the key of trace 1, of the same arguments, was evicted: cache_size=2" in line


NOISE, TABLE, HELD = np.ones(()), [np.ones(())], jnp.ones(())
MADE_ANEW: dict[str, tuple[Callable[[], Any], str]] = {
    "a NumPy array": (lambda: lambda x: x + NOISE, r"\(reads global 'NOISE', which cannot be proven unchanged\)"),
    "a NumPy array in a list": (lambda: lambda x: x + TABLE[0],
        r"\(reads TABLE\[0\] through global 'TABLE', which cannot be proven unchanged\)"),
    "an array of jax": (lambda: lambda x: x + HELD,
        r"\(same code, but the trace of the earlier one went with it, as it holds arrays\)"),
}  # fmt: skip


@pytest.mark.parametrize("reads", MADE_ANEW)
def test_a_function_made_anew_that_reads_what_is_not_proven(lines: Lines, reads: str) -> None:
    make, reason = MADE_ANEW[reads]
    filter_jit(make())(X)
    filter_jit(make())(X)
    first, second = lines()
    assert first == "<lambda>: trace 1, the first"
    assert re.search(r"trace 1, the first of function 2 of this code: <lambda> at \S+ is new " + reason, second)


def test_functions_inside_of_one_another_are_no_cause(lines: Lines) -> None:
    def pair(n: Any) -> Callable[[Any, int], Any]:
        def even(x: Any, times: int) -> Any:
            return x * n if times == 0 else odd(x, times - 1)

        def odd(x: Any, times: int) -> Any:
            return even(x, times - 1)

        return even

    def nested(n: Any, depth: int) -> Callable[[Any, int], Any]:
        fun = pair(n)
        for _ in range(depth):
            fun = functools.partial(lambda inner, x, times: inner(x, times), fun)
        return fun

    def counting(fun: Any) -> Callable[[Any, int], Any]:
        calls = 0

        def inner(x: Any, times: int) -> Any:
            nonlocal calls
            calls += 1
            return fun(x, times)

        return inner

    f, kept = filter_jit(lambda fun, x: fun(x, 2)), counting(pair(2))
    jitted = lambda n: jax.jit(pair(n), static_argnums=1)
    for make in (pair, lambda n: nested(n, 12), lambda n: nested(n, 40), jitted, lambda n: kept):
        lines(f, make(2), array(3))
        (line,) = lines(f, make(2), array(4))
        assert line.endswith(", because x: float32[3] -> float32[4]")


@pytest.mark.parametrize("transform", [jax.vmap, jax.checkpoint, jax.jacfwd])
def test_what_a_transformation_wraps_is_told_once(transform: Callable[[Any], Any], lines: Lines) -> None:
    f = filter_jit(lambda fun, x: fun(x))
    lines(f, transform(scale(2)), X[0])
    (line,) = lines(f, transform(scale(3)), X[0])
    assert line.count("closure cell 'alpha' 2 -> 3") == 1 and line.count("is new") == 2


@pytest.mark.parametrize(
    ("value", "expected"), [("1", 2), *(pytest.param(value, 0, marks=pytest.mark.nightly) for value in ("", "0"))]
)
def test_the_environment_variable(value: str, expected: int) -> None:
    script = "import partax, jax.numpy as jnp; f = partax.filter_jit(lambda x: x + 1); f(jnp.ones(3)); f(jnp.ones(4))"
    done = python("-c", script, PARTAX_EXPLAIN=value)
    assert done.stderr.count("trace ") == expected, done.stderr


def test_what_was_traced_while_it_was_off_is_compared_too(lines: Lines) -> None:
    f = filter_jit(lambda x, fun, value: x)
    with partax.explain(False):
        f(X, double, one)
    (line,) = lines(f, X, triple, one)
    assert line.startswith("<lambda>: trace 2, because fun: <lambda> at ")
    assert line.endswith("is new (same code, closure cell 'alpha' 2 -> 3)")


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError("never")


def test_a_repr_that_fails_or_is_not_asked_for(lines: Lines) -> None:
    asked: list[int] = []

    class Asked:
        def __repr__(self) -> str:
            asked.append(1)
            return "asked"

    f = filter_jit(lambda x, a: x)
    with partax.explain(False):
        f(X, Asked())
        assert asked == []
    (line,) = lines(f, X, Silent())
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
    __eq__ = Unequal.__eq__
    __hash__ = Unequal.__hash__
    __repr__ = Unequal.__repr__


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Net(array(3), activation=Unequal()),
            "`net.activation` compares unequal to that of a trace, though its"),
        (lambda: {"a": [1, Unequal()]}, "`net['a'][1]` compares unequal to that of a trace, though its"),
        (lambda: Net(array(3), activation=(1, Unequal())), "`net.activation[1]` compares unequal to that of a trace"),
        (lambda: functools.partial(max, Unequal()), "`net, argument 0` compares unequal to that of a trace"),
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
    f = filter_jit(lambda net, value, fun: net, cache_size=1, callables="identity")
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
    gone = weakref.ref(f._cache.history)
    del f
    collect()
    assert gone() is None


def test_records_are_bounded() -> None:
    f = filter_jit(lambda x, name: x)
    for i in range(400):
        f.eval_shape(1, f"{i}")
    gc.collect()
    assert f.cache_info().traces == 400 and len(f._cache.history.records) <= 256


def test_the_warning_of_a_second_number_tells_how_to_trace_all() -> None:
    f = filter_jit(lambda x, step, rate: x)

    def use() -> None:
        for value in range(4):
            f(X, value, 0.5)
            f(X, 0, float(value))

    with pytest.warns(partax.RetraceWarning) as caught:
        use()
    first, second = (str(warning.message) for warning in caught)
    assert "is_array_like" not in first
    assert second.endswith("or trace=partax.is_array_like for all numbers of all arguments")


def test_numbers_that_come_back_and_other_causes_do_not_warn() -> None:
    f = filter_jit(lambda x, n, name="a": x, cache_size=1)
    for i in range(20):
        f(X, i % 2)
    assert f.cache_info().traces == 1
    g = filter_jit(lambda x, n, name="a": (x, n, name))
    for i in range(8):
        for arguments in ((jnp.ones(i), 1), (X, 1, str(i)), (X, i % 2), (X, bool(i % 2))):
            g(*arguments)


def test_the_warning_as_an_error_leaves_no_trace_behind(traces: TraceCounter) -> None:
    @filter_jit
    def f(x: Any, n: int) -> Any:
        traces.tick()
        return x

    for n in range(2):
        f(X, n)
    with pytest.raises(partax.RetraceWarning):
        f(X, 2)
    assert traces.count == 2 and f.cache_info().traces == 2
    f(X, 2)
    assert traces.count == 3


def test_import_loads_none_of_it() -> None:
    script = """import sys, partax
print([name for name in sys.modules if name.endswith(('.report', '.history'))])
partax.debug.no_retrace; partax.report; partax.Report; partax.nothing"""
    done = python("-c", script, code=1)
    assert done.stdout == "[]\n"
    assert "AttributeError: module 'partax' has no attribute 'nothing'" in done.stderr


SOLVES = """
import sys
import diffrax
import jax.numpy as jnp
import partax

partax.equinox.accelerate()
for libraries in (None,) if sys.argv[1:] else (False, True):
    if libraries is not None:
        partax.explain(libraries=libraries)
    y = jnp.ones(4 if libraries else 3)
    diffrax.diffeqsolve(diffrax.ODETerm(lambda t, y, args: -y), diffrax.Tsit5(), 0.0, 1.0, 0.1, y)
    print("END", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "variable", "inside"),
    [([], "", [False, True]), pytest.param(["by the variable"], "all", [True], marks=pytest.mark.nightly)],
)
def test_what_a_library_calls_for_itself_is_told_where_that_is_asked_for(
    arguments: list[str], variable: str, inside: list[bool], tmp_path: Path
) -> None:
    pytest.importorskip("diffrax")
    (tmp_path / "solves.py").write_text(SOLVES)
    done = python("solves.py", *arguments, cwd=tmp_path, PARTAX_EXPLAIN=variable)
    told = [part.splitlines() for part in done.stderr.split("END\n")[:-1]]
    sites = [
        [line.removeprefix("WARNING:partax:").split(":")[0] for line in part if ": trace " in line] for part in told
    ]
    assert all(any(site.endswith("solves.py") for site in found) for found in sites), done.stderr
    assert [any(site.startswith("diffrax") for site in found) for found in sites] == inside, done.stderr
