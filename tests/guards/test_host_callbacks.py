"""Guards the promise that a callback to the host reads, when the program runs, what its own function holds."""

import logging
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from programs import WAYS


def by_debug_callback(settings: dict[str, float]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        jax.debug.callback(lambda y: logging.getLogger("host").critical("%s", settings["scale"] * float(y)), x)
        return x

    return f


def on_the_host(function: Callable[..., Any]) -> Callable[[dict[str, float]], Callable[[Any], Any]]:
    def make(settings: dict[str, float]) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            y = function(lambda y: np.float32(settings["scale"] * y), jax.ShapeDtypeStruct((), jnp.float32), x)
            jax.debug.callback(lambda y: logging.getLogger("host").critical("%s", float(y)), y)
            return y

        return f

    return make


HOST = {
    "jax.debug.callback": by_debug_callback,
    "jax.pure_callback": on_the_host(jax.pure_callback),
    "io_callback": on_the_host(io_callback),
    "equinox.filter_pure_callback": on_the_host(
        lambda function, shape, x: eqx.filter_pure_callback(function, x, result_shape_dtypes=shape)
    ),
}


@pytest.mark.parametrize("way", ["direct", "argument", "partial", "field", "closure"])
@pytest.mark.parametrize("make", HOST.values(), ids=HOST.keys())
def test_a_callback_reads_when_the_program_runs_what_its_own_function_holds(
    make: Callable[[dict[str, float]], Callable[[Any], Any]], way: str, caplog: pytest.LogCaptureFixture
) -> None:
    call, one, other = WAYS[way](), {"scale": 2.0}, {"scale": 2.0}
    functions = [make(one), make(other)]
    for fun in functions:
        call(fun, jnp.float32(1))
    one["scale"] = 3.0
    call(functions[1], jnp.float32(1))
    jax.effects_barrier()
    assert [record.getMessage() for record in caplog.records if record.name == "host"] == ["2.0", "2.0", "2.0"]
