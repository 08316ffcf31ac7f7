"""Guards the promise that filter_jvp, filter_vjp, filter_linearize and the Jacobians differentiate the inexact arrays
of any trees as Equinox's and jax's do, give None for all else, and name the path of a tangent that does not fit."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partax import filter_hessian, filter_jacfwd, filter_jacrev, filter_jvp, filter_linearize, filter_vjp
from transformed import arrays_of, assert_close_trees
from trees import Layer, array, assert_close

X = array(3, start=1)
LAYER = Layer(array(2, 3), array(2), activation=jnp.sin)


def mixed(x: Any, layer: Any, n: Any = 2) -> Any:
    """Arrays that depend on both, on one, and on none; ints; what is no array."""
    out = layer(x)
    return {
        "out": out * n,
        "x": [x, x > 1],
        "argmax": jnp.argmax(x),
        "ones": jnp.ones(2),
        "n": n,
        "name": "s",
        "none": None,
    }


def test_jvp_of_numbers_and_within_another() -> None:
    assert_close_trees(
        filter_jvp(lambda x, y: (x * y, y), (2.0, 3.0), (1.0, None)), ((jnp.float32(6), 3.0), (jnp.float32(3), None))
    )

    def second(x: Any, y: Any) -> Any:
        def first(z: Any) -> Any:
            return {"both": z**3 * y, "outer": y * 2, "none": 1}

        return filter_jvp(first, (x,), (1.0,))

    out, along = filter_jvp(second, (2.0, 5.0), (1.0, 1.0))
    assert_close_trees(out[1], {"both": jnp.float32(60), "outer": None, "none": None})
    assert_close_trees(along[1], {"both": jnp.float32(60 + 12), "outer": None, "none": None})
    assert_close(along[0]["outer"], jnp.float32(2))


@pytest.mark.parametrize("tangent", [X, None], ids=["beside another", "alone"])
def test_what_jax_has_for_tangents_of_integers_is_none(tangent: Any) -> None:
    zero = np.zeros((), jax.dtypes.float0)
    for jvp in (filter_jvp, jax.jit(filter_jvp, static_argnums=0)):
        out, along = jvp(lambda x, i: (x * i, i), (X, jnp.int32(2)), (tangent, zero))
        assert_close_trees((out, along), ((X * 2, jnp.int32(2)), (None if tangent is None else X * 2, None)))


WRONG_TANGENTS: dict[str, tuple[Any, Any, str]] = {
    "too few": (ValueError, (X,), "found 1 tangents and 2 primals"),
    "shape": (ValueError, (array(2), None), r"`x`: found the tangent float32\[2\], expected one like float32\[3\]"),
    "dtype": (TypeError, (X.astype(jnp.bfloat16), None), r"`x`: found the tangent bfloat16\[3\]"),
    "structure": (ValueError, (None, [X]), "`layer`: found a"),
    "below a leaf": (ValueError, ({"a": X}, None), "`x`: found"),
    "over a part": (ValueError, (None, X), "`layer`: found a tangent where no leaf can have one"),
}


@pytest.mark.parametrize("name", WRONG_TANGENTS)
def test_wrong_tangents_name_the_path(name: str) -> None:
    kind, tangents, message = WRONG_TANGENTS[name]
    with pytest.raises(kind, match=message):
        filter_jvp(mixed, (X, LAYER), tangents)
    theirs = (*tangents[:1], *(jax.tree.map(lambda _: None, LAYER) if t is None else t for t in tangents[1:]))
    with pytest.raises(kind):
        eqx.filter_jvp(mixed, (X, LAYER), theirs)


def test_a_tangent_of_what_has_none_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"`x\['n'\]`: found a tangent for a `int`, which can have none"):
        filter_jvp(lambda x: x["a"], ({"a": X, "n": 1},), ({"a": X, "n": 1.0},))


def test_vjp_takes_none_as_zeros_and_names_the_path() -> None:
    _, pull = filter_vjp(mixed, X, LAYER)
    cotangent = {**arrays_of(mixed(X, LAYER)), "ones": None}
    zeros = {**cotangent, "ones": jnp.zeros(2)}
    assert_close_trees(pull(cotangent), pull(zeros))
    for wrong, message in (
        ({**zeros, "ones": X}, r"`the result\['ones'\]`: found the cotangent float32\[3\], expected float32\[2\]"),
        ({**zeros, "n": X}, r"`the result\['n'\]`: found a cotangent where no leaf can have one"),
        ({"ones": X}, "`the result`: found a `dict`"),
    ):
        with pytest.raises(ValueError, match=message):
            pull(wrong)
        with pytest.raises(ValueError):
            eqx.filter_vjp(mixed, X, LAYER)[1](wrong)


def test_linearize_equals_jvp() -> None:
    out, push = filter_linearize(mixed, X, LAYER)
    tangents = (X, arrays_of(LAYER))
    expected, along = filter_jvp(mixed, (X, LAYER), tangents)
    assert_close_trees(out, expected)
    assert_close_trees(push(*tangents), {**along, "ones": jnp.zeros(2)})
    assert_close_trees(push(X, None)["out"], filter_jvp(mixed, (X, LAYER), (X, None))[1]["out"])
    *_, aux = filter_linearize(lambda x: (x, "aux"), X, has_aux=True)
    assert aux == "aux"
    with pytest.raises(ValueError, match=r"`layer\.bias`: found the tangent float32\[3\], expected float32\[2\]"):
        push(X, eqx.tree_at(lambda t: t.bias, arrays_of(LAYER), X))
    with pytest.raises(ValueError, match=r"found 1 tangents, expected one for each argument \(x, layer\)"):
        push(X)


PAIRS = [(filter_jacfwd, eqx.filter_jacfwd), (filter_jacrev, eqx.filter_jacrev), (filter_hessian, eqx.filter_hessian)]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_a_jacobian_is_by_what_wrt_takes(ours: Any, theirs: Any) -> None:
    def f(tree: Any, y: Any, *, n: int) -> Any:
        return [jnp.sin(tree["x"]) * y * tree["w"][0], jnp.sum(tree["x"] ** n)]

    tree = {"x": X, "w": (jnp.float32(2), "s", 3, None)}
    jitted = partax.filter_jit(ours(f, wrt=partax.by_path("x")))(tree, X, n=2)
    expected = theirs(lambda x: f({**tree, "x": x}, X, n=2))(X)
    assert_close_trees([t["x"]["x"] if ours is filter_hessian else t["x"] for t in jitted], expected)
    assert jitted[0]["w"][0] is None
    with pytest.raises(TypeError, match="found no argument by position"):
        ours(f)(tree=tree, y=X, n=2)


def test_what_cannot_be_called_is_a_type_error() -> None:
    for fun, args in ((filter_jvp, ((), ())), (filter_vjp, ()), (filter_linearize, ()), (filter_jacfwd, ())):
        with pytest.raises(TypeError, match="found a `int`, expected a callable"):
            fun(3, *args)
