"""Guards the promise that each trace is explained once, by the user's own paths, with the cause and no other;
and that what is re-created and traced each time is warned of once, at its third trace."""

import dataclasses
import logging
import re
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

import partax
from conftest import TraceCounter
from meshes import mesh_of, on
from partax import filter_jit
from trees import array

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
    """Compared by identity."""


@dataclasses.dataclass(frozen=True)
class ByValue:
    text: str


def scale(alpha: Any) -> Callable[[Any], Any]:
    return lambda x: x * alpha


X = jnp.ones((2, 3))


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


def test_what_a_library_calls_is_reported_if_that_is_asked_for(lines: Lines) -> None:
    schedule = optax.scale_by_schedule(filter_jit(lambda count: 0.5 * count))
    state = schedule.init(X)
    assert lines(schedule.update, X, state) == []
    with partax.explain(libraries=True):
        (line,) = lines(optax.scale_by_schedule(filter_jit(lambda count: 0.25 * count)).update, X, state)
    assert line == "<lambda>: trace 1, the first"


def test_the_difference_is_from_the_nearest_trace(lines: Lines) -> None:
    f = filter_jit(lambda x, y, n: x * n)
    f(array(2), array(2), 1)
    lines(f, array(3), array(3), 2)
    assert lines(f, array(2), array(3), 1) == ["<lambda>: trace 3, because y: float32[2] -> float32[3]"]
    assert lines(f, array(3), array(4), 2) == ["<lambda>: trace 4, because y: float32[3] -> float32[4]"]
    (line,) = lines(f, array(9), array(9), 9)
    assert line.count(";") == 2 and "x: " in line and "y: " in line and "n: static int" in line


def test_a_counter_is_warned_of_once(lines: Lines, recwarn: pytest.WarningsRecorder) -> None:
    @filter_jit
    def f(x: Any, state: dict[str, int]) -> Any:
        return x

    for step in range(8):
        f(X, {"step": step})
    (warning,) = recwarn
    assert (warning.category, warning.filename) == (partax.RetraceWarning, __file__)
    advice = """pass jnp.asarray(state['step']), or dynamic=("state",)"""
    text = "3 values of the static Python number `state['step']` are a trace of `f` each"
    assert str(warning.message) == f"{text}; {advice}"
    expected = [f"f: trace {i + 1}, because state['step']: static int {i - 1} -> {i} ({advice})" for i in range(1, 8)]
    assert lines()[1:] == expected


def test_numbers_that_change_together_are_warned_of_one_by_one(recwarn: pytest.WarningsRecorder) -> None:
    f = filter_jit(lambda x, step, rate: x)
    for step in range(5):
        f(X, step, 0.1 * step)
    assert [str(warning.message).split("`")[1] for warning in recwarn] == ["step", "rate"]


def test_what_is_compiled_again_for_other_devices(
    lines: Lines, traces: TraceCounter, devices: list[jax.Device]
) -> None:
    @filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return x + 1, 1

    x = np.ones(8, np.float32)
    assert lines(f, x) == ["f: trace 1, the first"]
    for device in devices[:2]:
        (line,) = lines(f, jax.device_put(x, device))
        assert line == f"f: compiled again for trace 1, because x: uncommitted -> committed to {device}"
    half, others = (mesh_of(some) for some in (devices[:4], devices[4:]))
    (line,) = lines(f, jax.device_put(x, on(half, "d")))
    assert line.startswith("f: trace 2, because ") and "mesh" in line
    (line,) = lines(f, jax.device_put(x, on(others, "d")))
    place = f"committed to {PartitionSpec('d')} of mesh {{'d': 4}}"
    assert line == f"f: compiled again for trace 2, because x: {place} -> {place} on other devices"
    assert traces.count == 2


def test_python_is_not_traced_with_jit_disabled(lines: Lines) -> None:
    f = filter_jit(lambda x: x + 1)
    with jax.disable_jit():
        assert [*lines(f, X), *lines(f, X)] == []


def test_the_records_of_a_function_are_bounded() -> None:
    f = filter_jit(lambda x, name: x, cache_size=2)
    for i in range(300):
        f.eval_shape(1, f"key {i}")
    assert len(f.report().traces) == 256


def test_records_keep_nothing_alive(collect: Callable[[], None]) -> None:
    f = filter_jit(lambda net, value, fun: net, cache_size=1, reuse_equal_functions=False)
    alive: list[weakref.ref[Any]] = []
    with partax.explain():
        for i in range(10):
            x, value, by_value, fun = array(i + 1), Opaque(), ByValue(f"v{i}"), scale(i)
            net = Net(jnp.ones(i + 1), fun)
            f(net, (value, by_value), fun)
            alive += [weakref.ref(o) for o in (x, value, by_value, fun, net, net.weight)]
            del x, value, by_value, fun, net
    collect()
    assert sum(ref() is not None for ref in alive) <= 6  # those of the one key that is kept
    f.clear_cache()
    collect()
    assert [ref() for ref in alive] == [None] * 60


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


# ---- What is re-created.

RNG = np.random.default_rng(0)
OF_FUNCTIONS = "create it once and reuse it, or pass what it reads as an argument"


class Settings:
    """A plain class without `__eq__`, whose instances a caller re-creates."""

    def __init__(self, rate: float) -> None:
        self.rate = rate


def warnings_by_call(call: Callable[[int], Any], number: int = 6) -> list[list[warnings.WarningMessage]]:
    """The retrace warnings of each of many calls."""
    by_call: list[list[warnings.WarningMessage]] = []
    for i in range(number):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call(i)
        by_call.append([warning for warning in seen if warning.category is partax.RetraceWarning])
    return by_call


def text_at_third(call: Callable[[int], Any]) -> str:
    """The text of the only warning, which comes at the third call and names the place of the call."""
    by_call = warnings_by_call(call)
    assert list(map(len, by_call)) == [0, 0, 1, 0, 0, 0]
    (warning,) = by_call[2]
    assert warning.filename == __file__
    return str(warning.message)


def test_an_argument_that_reads_a_generator() -> None:
    step = filter_jit(lambda x, noise: noise(x))
    text = text_at_third(lambda _: step(X, lambda x: x + RNG.random()))
    assert text.startswith("`noise`: <lambda> at test_explain.py:")
    assert "'RNG' (global of test_explain.py)" in text and "cannot be proven unchanged" in text
    assert "3 times" in text and text.endswith(OF_FUNCTIONS)
    assert step.cache_info().traces == 6


def test_a_called_lambda_that_is_re_created() -> None:
    text = text_at_third(lambda i: filter_jit(lambda x: x * i)(X))
    assert text.startswith("`<lambda>`: <lambda> at test_explain.py:")
    assert "'i' (closure of " in text and "from 1 to 2" in text and text.endswith(OF_FUNCTIONS)


def test_an_object_without_equality() -> None:
    step = filter_jit(lambda x, settings: x * settings.rate)
    text = text_at_third(lambda _: step(X, Settings(0.5)))
    assert text.startswith("`settings`: `Settings` object") and "no `__eq__`" in text
    assert text.endswith("keep one object, or give its class `__eq__` and `__hash__`")


def test_functions_and_objects_that_are_kept_are_not_warned_of() -> None:
    noise, settings = (lambda x: x + RNG.random()), Settings(0.5)
    step = filter_jit(lambda x, noise, settings: noise(x) * settings.rate)
    by_call = warnings_by_call(lambda i: step(jnp.ones(i + 1), noise, settings))  # other shapes are other traces
    assert by_call == [[]] * 6 and step.cache_info().traces == 6


def test_what_is_re_created_and_traced_once_is_not_warned_of() -> None:
    step = filter_jit(lambda x, scale: scale(x))
    assert warnings_by_call(lambda _: step(X, lambda x: x * 2)) == [[]] * 6
    assert warnings_by_call(lambda _: filter_jit(lambda x: x - 2)(X)) == [[]] * 6
    assert step.cache_info().traces == 1
