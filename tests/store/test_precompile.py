"""Guards the promise that calls which were precompiled neither trace nor compile, with a folder and without."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from test_what_is_stored import Net, on, update

import partax
import partax.equinox
import partax.nnx
from stored import written

pytestmark = pytest.mark.compiled_anew


def scaled(x: Any, by: int, tree: Any = None) -> Any:
    return x * by, tree


@pytest.mark.parametrize(("threads", "stored"), [(None, False), (3, True)])
def test_precompiled_calls_neither_trace_nor_compile(
    threads: int | None, stored: bool, tmp_path: Path, compiled: list[str]
) -> None:
    step = partax.filter_jit(scaled, donate=("tree",))
    for loads in (False, True) if stored else (False,):
        step.clear_cache()
        jax.clear_caches()
        with partax.store(tmp_path if stored else None):
            struct = jax.ShapeDtypeStruct((3,), "float32")
            step.precompile((struct, 2), {"by": 3, "x": jnp.ones(4)}, (struct, 2, {"a": struct}), threads=threads)
            written()
            del compiled[:]
            traces = step.cache_info().traces
            assert traces == (0 if loads else 3)
            for call in ((jnp.ones(3), 2), (jnp.ones(4), 3), (jnp.ones(3), 2, {"a": jnp.ones(3)})):
                assert np.allclose(step(*call)[0], call[1])
            assert step.cache_info().traces == traces and "scaled" not in str(compiled)
            assert step.cache_info()[2:4] == (3, 0)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_traced_is_placed_where_precompile_was_called(threads: int, caplog: pytest.LogCaptureFixture) -> None:
    f = partax.filter_jit(lambda x: x * 2)
    f.clear_cache()
    with caplog.at_level(logging.WARNING, "partax"), partax.explain():
        f.precompile((jnp.ones(3),), (jax.ShapeDtypeStruct((4,), "float32"),), threads=threads)
    places = [record.getMessage() for record in caplog.records if record.name == "partax"]
    line = test_what_is_traced_is_placed_where_precompile_was_called.__code__.co_firstlineno + 5
    assert places and all(f"test_precompile.py:{line} " in text for text in places)


CONTEXTS: dict[str, Callable[[], Any]] = {
    "precision": lambda: jax.default_matmul_precision("highest"),
    "kinds of numbers": lambda: jax.enable_x64(not jax.config.jax_enable_x64),
    "mesh": lambda: jax.set_mesh(jax.make_mesh((8,), ("a",))),
}


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_what_is_precompiled_within_a_with_statement_is_what_is_called_there(
    context: Callable[[], Any], stored: bool, tmp_path: Path, compiled: list[str]
) -> None:
    step = partax.filter_jit(lambda x: (x @ x, len(linen.logical_to_mesh_axes(("rows",))[0] or "")))
    step.clear_cache()  # that of the same in other contexts
    x = jnp.ones((3, 3), "float32")
    with context(), partax.store(tmp_path if stored else None):
        expected = len(linen.logical_to_mesh_axes(("rows",))[0] or "")
        step.precompile((x,), (jnp.ones((4, 4), "float32"),), threads=2)
        written()
        del compiled[:]
        found, rows = step(x)
        assert np.allclose(found, 3) and rows == expected
        assert step.cache_info().traces == 2 and "lambda" not in str(compiled)


def test_precompiling_takes_arrays_that_lie_on_several_devices(tmp_path: Path, compiled: list[str]) -> None:
    step = partax.filter_jit(scaled)
    for loads in (0, 1):
        step.clear_cache()
        with partax.store(tmp_path):
            step.precompile((jax.ShapeDtypeStruct((8,), "float32", sharding=on("a")), 2))
            written()
            del compiled[:]
            found, _ = step(jax.device_put(jnp.ones(8), on("a")), 2)
            assert np.allclose(found, 2) and found.sharding == on("a")
        assert step.cache_info().loads == loads and "scaled" not in str(compiled)


def test_a_step_of_nnx_is_precompiled(compiled: list[str]) -> None:
    step = partax.nnx.jit(update)
    net = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.sgd(1e-2), wrt=nnx.Param)
    before = np.asarray(net.first.kernel[...])
    step.precompile((net, optimizer, jax.ShapeDtypeStruct((5, 3), "float32")))
    assert np.array_equal(net.first.kernel[...], before)
    x = jnp.ones((5, 3))
    del compiled[:]
    step(net, optimizer, x)
    assert step.cache_info().traces == 1 and "update" not in str(compiled)


def test_wrong_calls_to_precompile_are_named() -> None:
    step = partax.filter_jit(scaled)
    with pytest.raises(TypeError, match="found a `int` as call 2, expected a tuple"):
        step.precompile((jnp.ones(3), 2), 3)  # type: ignore[arg-type]
    for threads, text in ((0, "0"), (float("nan"), "nan"), ("2", "'2'")):
        with pytest.raises(ValueError, match=f"threads={text}, expected a positive number"):
            step.precompile((jnp.ones(3), 2), threads=threads)  # type: ignore[arg-type]
    with pytest.raises(TypeError) as caught:
        step.precompile((jnp.ones(3), 2), (jnp.ones(3), "a"))
    assert "call 2 of 2" in caught.value.__notes__[-1]
    step(jnp.ones(3), 2)
    assert step.cache_info().misses == 0  # the other one is there
