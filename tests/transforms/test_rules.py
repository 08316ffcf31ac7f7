"""Guards the promise that filter_custom_jvp and filter_custom_vjp give their rules what Equinox's give, for any trees,
under every other transformation, and that what cannot be differentiated is named by its path."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import partax
from transformed import assert_close_trees
from trees import Layer, array

X = array(3, start=1)
LAYER = Layer(array(2, 3), array(2), activation=jnp.sin)
WRAPS = pytest.mark.parametrize("wrap", [lambda f: f, partax.filter_jit, partax.filter_checkpoint])


def power(custom_jvp: Any, seen: list[Any]) -> Any:
    @custom_jvp
    def f(x: Any, tree: Any, *, name: Any = None) -> Any:
        return [x ** tree["n"] * tree["w"], jnp.argmax(x)]

    def rule(primals: Any, tangents: Any, *, name: Any = None) -> Any:
        seen.append((jax.tree.map(lambda _: True, tangents), name))
        (x, tree), (dx, dtree) = primals, tangents
        out = f(x, tree, name=name)
        by_x = 0 if dx is None else 10 * dx * tree["w"]  # not the true one
        by_w = 0 if dtree["w"] is None else dtree["w"]
        return out, [jnp.zeros_like(out[0]) + by_x + by_w, None]

    f.def_jvp(rule)
    return f


@WRAPS
def test_custom_jvp_equals_equinox(wrap: Any) -> None:
    tree = {"w": jnp.float32(2), "n": 3, "s": "s", "i": jnp.arange(2)}

    def results(custom: Any, jvp: Any, grad: Any) -> Any:
        seen: list[Any] = []
        f = power(custom, seen)
        return (
            f(X, tree, name="n"),
            jvp(wrap(lambda x: f(x, tree, name="n")[0]), (X,), (X,)),
            grad(wrap(lambda t: jnp.sum(f(X, t)[0])))(tree),
            grad(wrap(lambda both: jnp.sum(f(*both)[0])))((X, tree)),
            jax.vmap(lambda x: f(x, tree)[0])(array(2, 3)),
            seen,
        )

    ours = results(partax.filter_custom_jvp, partax.filter_jvp, partax.filter_grad)
    assert_close_trees(ours, results(eqx.filter_custom_jvp, eqx.filter_jvp, eqx.filter_grad))


@pytest.mark.parametrize("wrap", [lambda f: f, partax.filter_jit])
def test_custom_jvp_keeps_numbers_that_are_no_arrays(wrap: Any) -> None:
    f = partax.filter_custom_jvp(lambda x: (x * 3, 2.5, 1))
    f.def_jvp(lambda primals, tangents: (f(*primals), (tangents[0] * 3, None, None)))
    out, along = partax.filter_jvp(wrap(f), (X,), (X,))
    assert_close_trees((out, along), ((X * 3, 2.5, 1), (X * 3, None, None)))
    assert jax.jvp(lambda x: wrap(f)(x)[0] * jnp.float32(1), (2.0,), (1.0,)) == (6, 3)
    f.def_jvp(lambda primals, tangents: (f(*primals), (tangents[0], None, 1.0)))
    with pytest.raises(TypeError, match=r"`the result\[2\]`: found a tangent for 1,"):
        partax.filter_jvp(wrap(f), (X,), (X,))


def test_custom_jvp_errors() -> None:
    f = partax.filter_custom_jvp(lambda x, *, y: x * y["a"][0])
    with pytest.raises(AttributeError, match="no rule by def_jvp"):
        f(X, y={"a": [X]})
    f.def_jvp(lambda primals, tangents, *, y: (primals[0] * y["a"][0], X[:2]))
    with pytest.raises(ValueError, match=r"`y\['a'\]\[0\]`: found an argument by name that is differentiated"):
        jax.grad(lambda y: jnp.sum(f(X, y={"a": [y]})))(X)
    with pytest.raises(ValueError, match=r"`the result`: found the tangent float32\[2\]"):
        jax.grad(lambda x: jnp.sum(f(x, y={"a": [X]})))(X)


def layered(custom_vjp: Any, seen: list[Any]) -> Any:
    @custom_vjp
    def f(tree: Any, x: Any, *, n: Any = 1) -> Any:
        return {"y": tree["layer"](x) * n, "z": tree["w"] * 2, "s": "s", "i": jnp.argmax(x)}

    def forward(perturbed: Any, tree: Any, x: Any, *, n: Any = 1) -> Any:
        seen.append(perturbed)
        return f(tree, x, n=n), (tree["w"] * 3, "residual", n)

    def backward(residuals: Any, cotangent: Any, perturbed: Any, tree: Any, x: Any, *, n: Any = 1) -> Any:
        seen.append((jax.tree.map(lambda _: True, cotangent), perturbed, residuals[1:]))
        gradient = jax.tree.map(lambda leaf: leaf * residuals[0], eqx.filter(tree, eqx.is_inexact_array))
        return {**gradient, "w": None} if cotangent["z"] is None else gradient

    f.def_fwd(forward)
    f.def_bwd(backward)
    return f


@WRAPS
def test_custom_vjp_equals_equinox(wrap: Any) -> None:
    tree = {"layer": LAYER, "w": jnp.float32(2), "i": jnp.arange(2), "s": "s"}

    def results(custom: Any, grad: Any) -> Any:
        seen: list[Any] = []
        f = layered(custom, seen)
        return (
            f(tree, X),
            grad(wrap(lambda t: jnp.sum(f(t, X, n=2)["y"])))(tree),
            grad(wrap(lambda t: jnp.sum(f(t, X)["y"]) + f(t, X)["z"]))(tree),
            grad(wrap(lambda w: jnp.sum(f({**tree, "w": w}, X)["y"])))(tree["w"]),
            jax.vmap(lambda w: f({**tree, "w": w}, X)["z"])(X),
            [] if wrap is partax.filter_checkpoint else seen,  # how often rules are run is jax's business
        )

    assert_close_trees(
        results(partax.filter_custom_vjp, partax.filter_grad), results(eqx.filter_custom_vjp, eqx.filter_grad)
    )


def test_only_the_first_argument_of_custom_vjp_is_differentiated() -> None:
    f = layered(partax.filter_custom_vjp, [])
    tree = {"layer": LAYER, "w": jnp.float32(2)}
    with pytest.raises(RuntimeError, match=r"`x`: found an array that is differentiated.* `tree`"):
        jax.grad(lambda x: jnp.sum(f(tree, x)["y"]))(X)
    with pytest.raises(RuntimeError, match=r"`n`: found an array that is differentiated"):
        jax.grad(lambda n: jnp.sum(f(tree, X, n=n)["y"]))(2.0)


def run(gradient: Any) -> Any:
    f = partax.filter_custom_vjp(lambda tree: tree["a"] * tree["n"])
    f.def_fwd(lambda perturbed, tree: (tree["a"] * tree["n"], None))
    f.def_bwd(lambda residuals, cotangent, perturbed, tree: gradient(tree))
    return jax.grad(lambda a: jnp.sum(f({"a": a, "n": 2})))(X)


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (lambda t: {"a": X[:2], "n": None}, r"`tree\['a'\]`: found the cotangent float32\[2\], expected one like"),
        (lambda t: {"a": X}, r"`tree`: found a `dict` with the keys \['a', 'n'\]"),
        (lambda t: X, "`tree`: found a cotangent where no leaf can have one"),
    ],
)
def test_a_wrong_cotangent_names_the_path(gradient: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        run(gradient)


def test_a_cotangent_of_what_can_have_none_is_left_out() -> None:
    assert_close_trees(run(lambda t: {"a": X, "n": 3.0}), X)


def test_a_rule_is_missing() -> None:
    f = partax.filter_custom_vjp(lambda x: x)
    for missing in ("def_fwd", "def_bwd"):
        with pytest.raises(RuntimeError, match=f"no rule by {missing}"):
            f(X)
        getattr(f, missing)(lambda *args: None)
    with pytest.raises(TypeError, match="found no argument by position"):
        f(x=X)


def test_they_are_pytrees_of_the_function_and_its_rules() -> None:
    f = layered(partax.filter_custom_vjp, [])
    assert repr(f) == "<partax.filter_custom_vjp of layered.<locals>.f>"
    gradient = lambda f, t: partax.filter_grad(lambda t: jnp.sum(f(t, X)["y"]))(t)
    tree = {"layer": LAYER, "w": jnp.float32(2)}
    for found in (gradient(jax.tree.map(lambda leaf: leaf, f), tree), partax.filter_jit(gradient)(f, tree)):
        assert_close_trees(found, gradient(f, tree))
