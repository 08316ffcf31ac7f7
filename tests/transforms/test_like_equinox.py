"""Guards the promise that derivatives, checkpoints, programs and callbacks of any trees are what Equinox's functions of
their names give: also in one another, with aux data of any kind, and where a part has no tangent; that what does not
fit is named by its path, and that names and policies of a checkpoint say what is kept."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import partax
from partax import filter_checkpoint, filter_io_callback, filter_pure_callback
from transformed import arrays_of, assert_close_trees
from trees import Bag, Layer, Pair, array, assert_same, make_model

X = array(3, start=1)
LAYER = Layer(array(2, 3), array(2), activation=jnp.sin)
NONE = jax.tree.map(lambda _: None, LAYER)
STRUCT = jax.ShapeDtypeStruct((3,), jnp.float32)
TANGENTS: dict[str, tuple[Any, Any]] = {
    "both": (X, arrays_of(LAYER)),
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
        assert [c is w for c in f.consts] == [True] and f.in_struct == ((STRUCT, 2), {})
        assert f.out_struct == {"y": jax.ShapeDtypeStruct((), jnp.float32), "s": "s"}
        return lib.filter_checkpoint(lambda f, x: f(x, 2)["y"])(f, X)

    return jax.grad(loss)(X), lib.filter_closure_convert(mixed, STRUCT, LAYER, flag="f")(X, LAYER, flag="f")


LIKE = {"y": jax.ShapeDtypeStruct((2,), jnp.float32), "name": ("n", 1)}


def on_host(layer: Any, x: Any, *, name: Any) -> Any:
    assert type(layer) is Layer and layer.scale == 2
    return {"y": np.asarray(layer.weight) @ np.asarray(x), "name": (name, 1)}


def called_back(lib: Any) -> Any:
    call = lambda layer, x: lib.filter_pure_callback(on_host, layer, x, name="n", result_shape_dtypes=LIKE)
    return call(LAYER, X), lib.filter_jit(call)(LAYER, X)


CALLS: dict[str, Callable[[Any], Any]] = {
    **{f"jvp, {name}": lambda lib, name=name: along(lib, name) for name in TANGENTS},
    "jvp in jit": lambda lib: along(lib, "both", lib.filter_jit),
    "jvp in vmap": lambda lib: lib.filter_vmap(
        lambda x: lib.filter_jvp(mixed, (x, LAYER), TANGENTS["both"], n=3), out_axes=eqx.if_array(0)
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


def test_jvp_of_numbers_and_within_another() -> None:
    def second(x: Any, y: Any) -> Any:
        return partax.filter_jvp(lambda z: {"both": z**3 * y, "outer": y * 2, "none": 1}, (x,), (1.0,))

    out, along = partax.filter_jvp(second, (2.0, 5.0), (1.0, 1.0))
    assert_close_trees(out[1], {"both": jnp.float32(60), "outer": None, "none": None})
    assert_close_trees(along[1], {"both": jnp.float32(60 + 12), "outer": None, "none": None})
    assert along[0]["outer"] == 2


@pytest.mark.parametrize("name", DERIVATIVES[2:])
def test_a_jacobian_is_by_what_wrt_takes_and_has_nothing_but_arrays(name: str) -> None:
    def f(tree: Any, y: Any, *, n: int) -> Any:
        return {"y": jnp.sin(tree["x"]) * y * tree["w"][0], "s": "s", "i": jnp.arange(2), "b": Bag(None, len)}, Pair(
            "s", y
        )

    tree, of = {"x": X, "w": (jnp.float32(2), "s", 3, None)}, getattr(partax, name)
    jitted, aux = partax.filter_jit(of(f, wrt=partax.by_path("x"), has_aux=True))(tree, X, n=2)
    found = jitted["y"]["x"]["x"] if name == "filter_hessian" else jitted["y"]["x"]
    assert_close_trees(found, getattr(eqx, name)(lambda x: f({**tree, "x": x}, X, n=2)[0]["y"])(X))
    assert len(jax.tree.leaves(jitted)) == 1
    assert_close_trees(aux, Pair("s", X))
    with pytest.raises(TypeError, match="found no argument by position"):
        of(f)(tree=tree, y=X, n=2)


def test_a_policy_says_what_is_kept() -> None:
    def f(x: Any) -> Any:
        return jnp.sum(jnp.sin(checkpoint_name(jnp.sin(checkpoint_name(jnp.sin(x), "first")), "second")))

    policy = jax.checkpoint_policies.save_only_these_names("second")
    count = lambda fun: str(jax.make_jaxpr(jax.grad(fun))(X)).count("= sin ")
    assert count(filter_checkpoint(f, policy=policy)) == count(jax.checkpoint(f, policy=policy))
    assert count(filter_checkpoint(policy=policy)(f)) < count(filter_checkpoint(f)) == count(jax.checkpoint(f))


def test_a_callback_under_vmap() -> None:
    options: Any = {"result_shape_dtypes": STRUCT, "vmap_method": "sequential"}
    call = lambda x: filter_pure_callback(lambda x, n: x * n, x, 2, **options)
    assert_same(jax.vmap(call)(array(2, 3)), array(2, 3) * 2)


def test_an_io_callback_runs_in_order() -> None:
    seen: list[Any] = []

    @partax.filter_jit
    def f(x: Any) -> Any:
        for name in ("first", "second"):
            filter_io_callback(lambda x, name: seen.append((name, float(x[0]))), x, name, ordered=True)
        options: Any = {"result_shape_dtypes": {"y": STRUCT, "s": "s"}, "ordered": True}
        return filter_io_callback(lambda x: {"y": x, "s": "s"}, x + 1, **options)

    assert_same(f(X), {"s": "s", "y": X + 1})
    assert seen == [("first", 1.0), ("second", 1.0)]


def jvp(*tangents: Any) -> Callable[[Any], Any]:
    return lambda lib: lib.filter_jvp(mixed, (X, LAYER), tangents)


def pull(**wrong: Any) -> Callable[[Any], Any]:

    def call(lib: Any) -> Any:
        out, pull = lib.filter_vjp(mixed, X, LAYER)
        return pull({**arrays_of(out), **wrong})

    return call


def converted(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    return lambda lib: lib.filter_closure_convert(mixed, X, LAYER, 2)(*args, **kwargs)


FITS_ONE = r"found the tangent {}, expected one like float32\[3\]"
# What does not fit; Equinox has an error there too.
WRONG: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    "too few tangents": (jvp(X), ValueError, "`primals`: found a `tuple` with 2 children"),
    "shape": (jvp(array(2), NONE), ValueError, r"`primals\[0\]`: " + FITS_ONE.format(r"float32\[2\]")),
    "dtype": (jvp(X.astype(jnp.bfloat16), NONE), TypeError, r"`primals\[0\]`: " + FITS_ONE.format(r"bfloat16\[3\]")),
    "structure": (jvp(None, [X]), ValueError, r"`primals\[1\]`: found a"),
    "over a part": (jvp(None, X), ValueError, r"`primals\[1\]`: found a tangent where no leaf can have one"),
    "of a number": (
        lambda lib: lib.filter_jvp(lambda x: x["a"], ({"a": X, "n": 1},), ({"a": X, "n": 1.0},)),
        TypeError,
        r"`primals\[0\]\['n'\]`: found a tangent for 1, which can have none",
    ),
    "cotangent": (pull(ones=X), ValueError, r"`the result\['ones'\]`: found the cotangent float32"),
    "no array": (pull(n=X), ValueError, r"`the result\['n'\]`: found a cotangent where no leaf can have one"),
    "another shape": (
        converted(array(2), LAYER, 2),
        ValueError,
        r"kwargs\)\[0\]\[0\]`: found .*2.*expected .*3",
    ),
    "another number": (converted(X, LAYER, 3), ValueError, r"\[0\]\[2\]`: found 3, expected 2"),
    "another keyword": (converted(X, LAYER, 2, flag=1), ValueError, r"\[1\]\['flag'\]`: found 1, expected nothing"),
    "a number for an array": (
        converted(1.0, LAYER, 2),
        ValueError,
        r"\[0\]\[0\]`: found 1.0, expected float32",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_told_by_its_path(name: str) -> None:
    call, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        call(partax)
    with pytest.raises((ValueError, TypeError)):
        call(eqx)


def test_what_cannot_be_called_is_a_type_error() -> None:
    callback: Any = lambda f: partax.filter_pure_callback(f, X, result_shape_dtypes=None)
    calls = partax.filter_vjp, partax.filter_jacfwd, partax.filter_vmap, callback
    for call in (lambda f: partax.filter_jvp(f, (), ()), *calls):
        with pytest.raises(TypeError, match="found a `int`, expected a callable"):
            call(3)


@pytest.mark.parametrize(("expected", "message"), [
    ({**LIKE, "name": ("m", 1)}, r"result of the callback `on_host` is not what .*found .*'n'.*expected .*'m'"),
    ({"y": LIKE["y"]}, r"found a `dict` with the keys \['name', 'y'\]"),
])  # fmt: skip
def test_a_result_of_a_callback_that_is_not_as_said_is_an_error(expected: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        jax.block_until_ready(filter_pure_callback(on_host, LAYER, X, name="n", result_shape_dtypes=expected))
