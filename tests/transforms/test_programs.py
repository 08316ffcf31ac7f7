"""Guards the promise that filter_checkpoint, filter_eval_shape, filter_make_jaxpr, filter_closure_convert and callbacks
take and return any trees as Equinox's do, and that the names and policies of a checkpoint say what is kept."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import partax
from older_jax import not_on_older_jax
from partax import (
    filter_checkpoint,
    filter_closure_convert,
    filter_io_callback,
    filter_pure_callback,
)
from transformed import assert_close_trees
from trees import Layer, array, assert_same

X = array(3, start=1)
LAYER = Layer(array(2, 3), array(2), activation=jnp.sin)


def mixed(layer: Any, x: Any, n: Any = 2, *, flag: Any = None) -> Any:
    return {"out": layer(x) * n, "s": ("s", flag, n), "n": 1, "ints": jnp.argmax(x)}


def kept(fun: Any) -> str:
    """What jax says a gradient keeps of a function."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        jax.ad_checkpoint.print_saved_residuals(fun, X)
    return out.getvalue()


@not_on_older_jax("names nothing in what it prints")
def test_policies_and_names_say_what_is_kept() -> None:
    def f(x: Any) -> Any:
        return jnp.sum(jnp.sin(checkpoint_name(jnp.sin(checkpoint_name(jnp.sin(x), "first")), "second")))

    nothing = kept(filter_checkpoint(f))
    assert "first" not in nothing and "second" not in nothing
    assert "second" in kept(filter_checkpoint(f, names=("second",)))
    assert "first" not in kept(filter_checkpoint(names=["second"])(f))
    everything = kept(filter_checkpoint(f, policy="everything_saveable"))
    assert everything.count("\n") > nothing.count("\n")
    assert kept(filter_checkpoint(f, policy=jax.checkpoint_policies.everything_saveable)) == everything
    with pytest.raises(ValueError, match=r"found the policy 'all', expected one of .*dots_saveable"):
        filter_checkpoint(f, policy="all")
    with pytest.raises(ValueError, match="found a policy and names"):
        filter_checkpoint(f, policy="dots_saveable", names=("a",))
    with pytest.raises(TypeError, match="expected a sequence of names"):
        filter_checkpoint(f, names="first")


def test_a_module_that_is_converted_is_a_pytree_of_its_arrays() -> None:
    module = filter_closure_convert(LAYER, X)
    assert repr(module) == "<partax.filter_closure_convert of Layer>"
    assert_close_trees(module(X), LAYER(X))
    doubled = jax.tree.map(lambda leaf: leaf * 2 if eqx.is_array(leaf) else leaf, module)
    assert_same(doubled.consts, [leaf * 2 for leaf in module.consts])
    assert_close_trees(partax.filter_jit(lambda f, x: f(x))(module, X), LAYER(X))


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((LAYER, array(2), 2), {}, r"`args\[1\]`: found float32\[2\], expected float32\[3\], which mixed"),
        ((LAYER, X, 3), {}, r"for other arguments: found \(Layer\(.*, 3\), expected \(Layer\(.*, 2\)"),
        ((LAYER, X, 2), {"flag": 1}, "for other arguments"),
        ((LAYER, 1.0, 2), {}, "for other arguments"),
    ],
)
def test_closure_convert_refuses_other_arguments(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        filter_closure_convert(mixed, LAYER, X, 2)(*args, **kwargs)
    with pytest.raises(ValueError):
        eqx.filter_closure_convert(mixed, LAYER, X, 2)(*args, **kwargs)


ROW = array(3)


def on_host(layer: Any, x: Any, *, name: Any) -> Any:
    assert type(layer) is Layer and layer.scale == 2
    return {"y": np.asarray(layer.weight) @ np.asarray(x), "name": (name, 1), "sum": np.sum(x, dtype=np.float32)}


def structs(name: Any = "n") -> Any:
    return {
        "y": jax.ShapeDtypeStruct((2,), jnp.float32),
        "name": (name, 1),
        "sum": jax.ShapeDtypeStruct((), jnp.float32),
    }


def test_vmap_methods() -> None:
    def call(x: Any, **options: Any) -> Any:
        struct = jax.ShapeDtypeStruct((3,), jnp.float32)
        return filter_pure_callback(lambda x, n: x * n, x, 2, result_shape_dtypes=struct, **options)

    for options in ({"vmap_method": "sequential"}, {"vectorized": True}, {"vectorized": False}):
        assert_same(jax.vmap(lambda x: call(x, **options))(array(2, 3)), array(2, 3) * 2)  # noqa: B023
    with pytest.raises(ValueError, match="found vectorized and vmap_method"):
        call(ROW, vectorized=True, vmap_method="sequential")


@pytest.mark.parametrize("callback", [filter_pure_callback, filter_io_callback])
def test_what_is_not_as_said_is_an_error(callback: Any) -> None:
    def run(expected: Any) -> Any:
        return jax.block_until_ready(callback(on_host, LAYER, ROW, name="n", result_shape_dtypes=expected))

    with pytest.raises(Exception, match=r"result of the callback `on_host` is not what .*found .*'n'.*expected .*'m'"):
        run(structs("m"))
    with pytest.raises(Exception, match=r"found a `dict` with the keys \['name', 'sum', 'y'\]"):
        run({"y": structs()["y"]})
    with pytest.raises(TypeError, match="found a `int`, expected a callable"):
        callback(3, ROW, result_shape_dtypes=None)


def test_an_io_callback_runs_in_order() -> None:
    seen: list[Any] = []

    @partax.filter_jit
    def f(x: Any) -> Any:
        for name in ("first", "second"):
            filter_io_callback(lambda x, name: seen.append((name, float(x[0]))), x, name, ordered=True)
        struct = {"y": jax.ShapeDtypeStruct((3,), jnp.float32), "s": "s"}
        return filter_io_callback(lambda x: {"y": x, "s": "s"}, x + 1, result_shape_dtypes=struct, ordered=True)

    assert_same(f(ROW), {"s": "s", "y": ROW + 1})
    assert seen == [("first", 0.0), ("second", 0.0)]
