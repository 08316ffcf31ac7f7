"""Guards the promise that callbacks take and return any trees, as Equinox's pure callback does, and that what a
callback returns beside arrays is what was said of it."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partax import filter_io_callback, filter_pure_callback
from trees import Layer, array, assert_same

X = array(3)
LAYER = Layer(array(2, 3), array(2), activation=jnp.sin)


def on_host(layer: Any, x: Any, *, name: Any) -> Any:
    assert type(layer) is Layer and layer.scale == 2
    return {"y": np.asarray(layer.weight) @ np.asarray(x), "name": (name, 1), "sum": np.sum(x, dtype=np.float32)}


def structs(name: Any = "n") -> Any:
    return {
        "y": jax.ShapeDtypeStruct((2,), jnp.float32),
        "name": (name, 1),
        "sum": jax.ShapeDtypeStruct((), jnp.float32),
    }


@pytest.mark.parametrize("jit", [False, True])
def test_a_pure_callback_equals_equinox(jit: bool) -> None:
    results: list[Any] = []
    for module, wrap in ((partax, partax.filter_jit), (eqx, eqx.filter_jit)):
        call = lambda layer, x, module=module: module.filter_pure_callback(
            on_host, layer, x, name="n", result_shape_dtypes=structs()
        )
        results.append((wrap(call) if jit else call)(LAYER, X))
    assert_same(*results)


def test_vmap_methods() -> None:
    def call(x: Any, **options: Any) -> Any:
        struct = jax.ShapeDtypeStruct((3,), jnp.float32)
        return filter_pure_callback(lambda x, n: x * n, x, 2, result_shape_dtypes=struct, **options)

    for options in ({"vmap_method": "sequential"}, {"vectorized": True}, {"vectorized": False}):
        assert_same(jax.vmap(lambda x: call(x, **options))(array(2, 3)), array(2, 3) * 2)  # noqa: B023
    with pytest.raises(ValueError, match="found vectorized and vmap_method"):
        call(X, vectorized=True, vmap_method="sequential")


@pytest.mark.parametrize("callback", [filter_pure_callback, filter_io_callback])
def test_what_is_not_as_said_is_an_error(callback: Any) -> None:
    def run(expected: Any) -> Any:
        return jax.block_until_ready(callback(on_host, LAYER, X, name="n", result_shape_dtypes=expected))

    with pytest.raises(Exception, match=r"result of the callback `on_host` is not what .*found .*'n'.*expected .*'m'"):
        run(structs("m"))
    with pytest.raises(Exception, match=r"found a `dict` with the keys \['name', 'sum', 'y'\]"):
        run({"y": structs()["y"]})
    with pytest.raises(TypeError, match="found a `int`, expected a callable"):
        callback(3, X, result_shape_dtypes=None)


def test_an_io_callback_runs_in_order() -> None:
    seen: list[Any] = []

    @partax.filter_jit
    def f(x: Any) -> Any:
        for name in ("first", "second"):
            filter_io_callback(lambda x, name: seen.append((name, float(x[0]))), x, name, ordered=True)
        struct = {"y": jax.ShapeDtypeStruct((3,), jnp.float32), "s": "s"}
        return filter_io_callback(lambda x: {"y": x, "s": "s"}, x + 1, result_shape_dtypes=struct, ordered=True)

    assert_same(f(X), {"s": "s", "y": X + 1})
    assert seen == [("first", 0.0), ("second", 0.0)]
