"""Guards the promise that derivatives, programs and callbacks of any trees are what Equinox's functions of their names
give: also in one another, with aux data of any kind, and where a part has no tangent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from transformed import arrays_of, assert_close_trees
from trees import Bag, Layer, Pair, array, make_model

X = array(3, start=1)
LAYER = Layer(array(2, 3), array(2), activation=jnp.sin)
NONE = jax.tree.map(lambda _: None, LAYER)
STRUCT = jax.ShapeDtypeStruct((3,), jnp.float32)
TANGENTS: dict[str, tuple[Any, Any]] = {
    "both": (X, arrays_of(LAYER)),
    "x": (X, NONE),
    "the layer": (None, arrays_of(LAYER)),
    "a part of it": (None, eqx.tree_at(lambda t: t.bias, arrays_of(LAYER), None)),
    "nothing": (None, NONE),
}
DERIVATIVES = ("filter_grad", "filter_value_and_grad", "filter_jacfwd", "filter_jacrev", "filter_hessian")
MARK = object()


def mixed(x: Any, layer: Any, n: Any = 2, *, flag: Any = None) -> Any:
    """Arrays that depend on both, on one, and on none; ints; what is no array."""
    out = {"out": layer(x) * n, "x": [x, x > 1], "argmax": jnp.argmax(x), "ones": jnp.ones(2)}
    return {**out, "n": n, "name": ("s", flag), "none": None}


def along(lib: Any, name: str, wrap: Callable[..., Any] = lambda f: f) -> Any:
    return lib.filter_jvp(wrap(mixed), (X, LAYER), TANGENTS[name], n=3)


def pulled(lib: Any) -> Any:
    out, pull = lib.filter_vjp(mixed, X, LAYER)
    cotangent = arrays_of(out)
    aux_too = lib.filter_vjp(lambda x: (x * 2, {"s": "s", "x": x, "n": (1, x > 1)}), X, has_aux=True)
    return out, pull(cotangent), lib.filter_jit(lambda p, c: p(c))(pull, cotangent), aux_too[1](X), aux_too[2]


def total(tree: Any, y: Any, *, n: int) -> Any:
    return jnp.sum(jnp.sin(tree["x"]) * y * tree["w"][0]) + jnp.sum(tree["x"] ** n)


def derivative(lib: Any, name: str) -> Any:
    """With all that aux data may be there."""
    tree = {"x": X, "w": (jnp.float32(2), "s", 3, None)}
    aux = {"a": (X * 2, "s"), "b": [MARK, None, 1, True, 2.0], "f": len, "m": make_model(1)}
    more, of = aux if "grad" in name else {}, getattr(lib, name)
    with_aux = of(lambda tree, y, *, n: (total(tree, y, n=n), {"x": tree["x"] * 2, **more}), has_aux=True)
    return of(total)(tree, X, n=3), with_aux(tree, X, n=3)


def shapes(lib: Any) -> Any:
    calls = [(X, LAYER), (STRUCT, LAYER, 3), (X, LAYER, jnp.float32(2))]
    return [lib.filter_eval_shape(mixed, *args, flag="f") for args in calls], lib.filter_eval_shape(LAYER, STRUCT)


def program(lib: Any) -> Any:
    jaxpr, *rest = lib.filter_make_jaxpr(mixed)(STRUCT, LAYER, 3, flag="f")
    return str(jaxpr), rest


def checkpointed(lib: Any) -> Any:
    f = lib.filter_checkpoint(mixed)
    gradient = lib.filter_grad(lambda layer: jnp.sum(f(X, layer)["out"]))(LAYER)
    return f(X, LAYER), f(X, LAYER, jnp.float32(2), flag=X), lib.filter_checkpoint(LAYER)(X), gradient


def closed_over(lib: Any) -> Any:
    """The gradient through a function that has closed over what is being differentiated, and what that function is."""

    def loss(w: Any) -> Any:
        f = lib.filter_closure_convert(lambda x, n: {"y": jnp.sum(w * x) * n, "s": "s"}, X, 2)
        assert [c is w for c in f.consts] == [True]
        assert f.in_struct == ((STRUCT, 2), {})
        assert f.out_struct == {"y": jax.ShapeDtypeStruct((), jnp.float32), "s": "s"}
        return lib.filter_checkpoint(lambda f, x: f(x, 2)["y"])(f, X)

    return jax.grad(loss)(X), lib.filter_closure_convert(mixed, STRUCT, LAYER, flag="f")(X, LAYER, flag="f")


def called_back(lib: Any) -> Any:
    def on_host(layer: Any, x: Any, *, name: Any) -> Any:
        assert type(layer) is Layer and layer.scale == 2
        return {"y": np.asarray(layer.weight) @ np.asarray(x), "name": (name, 1)}

    like = {"y": jax.ShapeDtypeStruct((2,), jnp.float32), "name": ("n", 1)}
    call = lambda layer, x: lib.filter_pure_callback(on_host, layer, x, name="n", result_shape_dtypes=like)
    return call(LAYER, X), lib.filter_jit(call)(LAYER, X)


CALLS: dict[str, Callable[[Any], Any]] = {
    **{f"jvp, {name}": lambda lib, name=name: along(lib, name) for name in TANGENTS},
    "jvp in jit": lambda lib: along(lib, "both", lib.filter_jit),
    "jvp in vmap": lambda lib: lib.filter_vmap(
        lambda x: lib.filter_jvp(mixed, (x, LAYER), TANGENTS["both"], n=3), out_axes=lib.if_array(0)
    )(array(2, 3)),
    "vjp": pulled,
    **{name: lambda lib, name=name: derivative(lib, name) for name in DERIVATIVES},
    "eval_shape": shapes,
    "make_jaxpr": program,
    "checkpoint": checkpointed,
    "closure_convert": closed_over,
    "pure_callback": called_back,
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_what_equinox_gives(name: str) -> None:
    assert_close_trees(CALLS[name](partax), CALLS[name](eqx))


def test_a_result_has_what_is_no_array_and_a_jacobian_has_not() -> None:
    def f(model: Any, x: Any) -> Any:
        return {"y": model(x), "n": 1, "ints": jnp.arange(2), "s": "s", "layer": Bag(None, len)}, Pair("s", x)

    for name in DERIVATIVES[2:]:
        jacobian, aux = getattr(partax, name)(has_aux=True)(f)(make_model(1), X)
        assert_close_trees(jacobian.pop("y"), getattr(eqx, name)(lambda m: m(X))(make_model(1)))
        assert jax.tree.leaves(jacobian) == []
        assert_close_trees(aux, Pair("s", X))
