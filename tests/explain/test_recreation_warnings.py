"""Guards the promise that what is re-created and traced each time is warned of once, at its third trace."""

import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import partax
from partax import filter_jit

X = jnp.ones(3)
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
    assert text.startswith("`noise`: <lambda> at test_recreation_warnings.py:")
    assert "'RNG' (global of test_recreation_warnings.py)" in text and "cannot be proven unchanged" in text
    assert "3 times" in text and text.endswith(OF_FUNCTIONS)
    assert step.cache_info().traces == 6


def test_a_called_lambda_that_is_re_created() -> None:
    text = text_at_third(lambda i: filter_jit(lambda x: x * i)(X))
    assert text.startswith("`<lambda>`: <lambda> at test_recreation_warnings.py:")
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
