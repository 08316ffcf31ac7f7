"""Guards the promise that filter_vmap and filter_shard_map give arrays an axis, or devices their parts, as those of
Equinox and jax do, by prefixes and names of arguments, pass everything else through, and name what does not fit."""

import pickle
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import partax
from partax import filter_shard_map, filter_vmap
from transformed import assert_close_trees
from trees import Bag, Cell, Layer, Pair, array, assert_same, make_model

X = array(3, 2)


def mixed(x: Any, y: Any = 1.5) -> Any:
    return {"sum": x + y, "text": "s", "pair": Pair(x * 2, (y, None)), "cell": Cell(x, mode="m"), "ones": jnp.ones(2)}


CASES: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[Any, ...]]] = {
    "default": (mixed, {}, (X, array(3))),
    "one axis for all": (lambda x, y: x @ y, {"in_axes": 1}, (array(2, 3), array(2, 3))),
    "negative": (mixed, {"in_axes": (-1,), "out_axes": eqx.if_array(-1)}, (X,)),
    "a prefix": (lambda t: t[0] + t[1]["a"], {"in_axes": ((0, {"a": None}),)}, ((array(3), {"a": array(2)}),)),
    "a function": (lambda t: t[0], {"in_axes": (lambda leaf: 1 if eqx.is_array(leaf) else None,)}, ((X, "s"),)),
    "by name": (mixed, {"in_axes": {"y": None}}, (X, array(2))),
    "module without axis": (lambda layer, x: layer(x), {"in_axes": (None, 0)}, (make_model().layers[0], array(4, 3))),
    "out axes": (lambda x: {"a": x, "s": ("s", x)}, {"out_axes": {"a": 1, "s": (None, eqx.if_array(1))}}, (X,)),
    "axis_size alone": (lambda x: x, {"in_axes": None, "axis_size": 4}, (array(2),)),
    "axis_name": (lambda x: x - jax.lax.pmean(x, "i"), {"axis_name": "i"}, (X,)),
    "keys": (lambda key: (key, jax.random.normal(key)), {"out_axes": -1}, (jax.random.split(jax.random.key(0), 3),)),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_equinox(name: str) -> None:
    fun, options, args = CASES[name]
    assert_same(filter_vmap(fun, **options)(*args), eqx.filter_vmap(fun, **options)(*args))


WRONG: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[Any, ...], str]] = {
    "sizes": (
        lambda x, xs: xs,
        {},
        ([X], array(4)),
        r"(?s)size 3: axis 0 of argument x\[0\] .*4: axis 0 .* xs ",
    ),
    "no axis": (lambda x, *more: x, {}, (X, X, array()), r"`more\[1\]`: found float32\[\], expected an array that"),
    "no array": (lambda x, y: x, {"in_axes": 0}, (X, {"a": 1.0}), r"`y\['a'\]`: found 1.0, expected an array"),
    "no axis at all": (lambda x: x, {"in_axes": None}, (X,), "axis_size must be specified"),
    "out of range": (
        lambda x: Bag(x),
        {"out_axes": 2},
        (X,),
        r"`the result.*`: found float32.* axis 2 of out_axes",
    ),
    "no prefix": (lambda x: x, {"in_axes": ({"a": 0},)}, ({"b": X},), r"`x`: found a `dict` with the keys \['b'\]"),
    "no prefix of the result": (lambda x: {"a": x}, {"out_axes": (0,)}, (X,), "`the result`: found a `dict`"),
    "entries": (lambda x, y: x, {"in_axes": (0,)}, (X, X), "found 1 entries, expected one for each of the 2"),
    "no such argument": (lambda x: x, {"in_axes": {"y": 0}}, (X,), r"in_axes: found 'y', .* \(x\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_path_where_equinox_has_one_too(name: str) -> None:
    fun, options, args, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        filter_vmap(fun, **options)(*args)
    with pytest.raises(ValueError):
        eqx.filter_vmap(fun, **options)(*args)


def test_an_axis_for_what_is_no_array_names_it() -> None:
    with pytest.raises(TypeError, match=r"`the result\['kept'\]\[1\]`: found 'name', .*give None there"):
        filter_vmap(lambda x: {"x": x, "kept": [x, "name"]}, out_axes={"x": 0, "kept": 0})(X)
    assert_same(filter_vmap(lambda x: (x, 2.0), out_axes=0)(X), (X, np.full(3, 2, np.float32)))


def test_arguments_by_name_have_the_axis_that_they_have_by_position() -> None:
    def f(x: Any, y: Any, *, z: Any = 0) -> Any:
        return x + y + z

    for in_axes in ((0, None), {"y": None}):
        mapped = filter_vmap(f, in_axes=in_axes)
        assert_same(mapped(y=array(2), x=X, z=jnp.ones(3)), X + array(2) + 1)
        assert_same(partax.filter_jit(mapped)(X, y=array(2)), X + array(2))
    assert_same(filter_vmap(f, in_axes={"z": None})(X, X, z=array(2)), 2 * X + array(2))


def test_names_of_variable_arguments_stand_for_all_in_them() -> None:
    def f(x: Any, *rest: Any, **named: Any) -> Any:
        return x, rest, named

    mapped = filter_vmap(f, in_axes={"rest": None, "named": 0}, out_axes=(0, None, {"a": 0, "b": 0}))
    assert_same(mapped(X, 1, array(2), a=X, b=X), (X, (1, array(2)), {"a": X, "b": X}))
    mapped = filter_vmap(f, in_axes=(0, None, 0), out_axes=(0, (None, 0), 0))
    assert_same(mapped(X, 1, X, b=X), (X, (1, X), {"b": X}))


def test_a_module_under_it_is_not_mapped_but_as_an_argument_it_is() -> None:
    layer, x = make_model().layers[0], array(4, 3)
    double = lambda tree: jax.tree.map(lambda leaf: leaf * 2 if eqx.is_array(leaf) else leaf, tree)
    assert_same(double(filter_vmap(layer))(x), jax.vmap(double(layer))(x))
    gradient = partax.filter_grad(lambda f, x: jnp.sum(f(x)))(filter_vmap(layer), x)
    assert_same(gradient.__wrapped__, partax.filter_grad(lambda f, x: jnp.sum(jax.vmap(f)(x)))(layer, x))


class Scaled(eqx.Module):
    by: jax.Array

    @filter_vmap(in_axes=(None, 0))
    def each(self, x: jax.Array) -> jax.Array:
        return self.by * jnp.sum(x)


def test_as_a_method_and_pickled() -> None:
    assert_same(Scaled(array(2)).each(X), jax.vmap(lambda x: array(2) * jnp.sum(x))(X))
    assert pickle.loads(pickle.dumps(Scaled.each)) is Scaled.each


ROWS = array(8, 3)
LAYER = Layer(array(2, 3), array(2), activation=jnp.sin)


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))


def apply(layer: Any, x: Any, n: Any = 1) -> Any:
    return {"y": jax.vmap(layer)(x) * n, "mean": jax.lax.pmean(jnp.mean(x), "d"), "s": ("s", n), "rows": x.shape[0]}


NONE = {"s": None, "rows": None}
SPECS: dict[str, tuple[Any, Any]] = {
    "tuple": ((None, P("d"), None), {"y": P("d"), "mean": P(), **NONE}),
    "prefix": ((Layer(None, P(), rate=None, activation=jnp.sin), P("d"), P()), {"y": P("d"), "mean": None, **NONE}),
    "by name": ({"x": P("d")}, {"y": P("d"), "mean": P(), "s": P(), "rows": None}),
}


@pytest.mark.parametrize("name", SPECS)
def test_equals_jax_on_arrays(mesh: Any, name: str) -> None:
    in_specs, out_specs = SPECS[name]
    mapped = filter_shard_map(apply, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    out = mapped(LAYER, ROWS, 2)
    assert_close_trees(out, {"y": jax.vmap(LAYER)(ROWS) * 2, "mean": jnp.mean(ROWS), "s": ("s", 2), "rows": 1})
    assert out["y"].sharding.spec == P("d")


def test_the_mesh_and_the_specs_of_the_context() -> None:
    explicit = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(explicit):
        x = jax.device_put(ROWS, P("d"))
        out = filter_shard_map(lambda x, s: (x * 2, s, x.shape), out_specs=(P("d"), None, None))(x, "s")
    assert_same(out, (ROWS * 2, "s", (1, 3)))


# Specs of the argument `t` of two arrays and of the result, what the function returns, and the place in the message.
WRONG_SPECS: dict[str, tuple[Any, Any, Callable[[Any], Any], str]] = {
    "entries": ((P("d"), P()), P(), lambda t: t, "in_specs: found 2 entries, expected one for each of the 1 arguments"),
    "not a spec": (["d"], P(), lambda t: t, r"in_specs\[0\]\[0\] is d of type str"),
    "rank": ((P(None, "d"),), P(), lambda t: t, r"args\[0\]\[1\], where args\[0\] is bound to .* parameter 't'"),
    "size": (([P(), P("d")],), P(), lambda t: t, r"args\[0\]\[1\] of shape float32\[3\]"),
    "not a spec of the result": (P(), {"r": 3}, lambda t: {"r": t[0]}, r"out_specs\['r'\] is 3"),
    "structure of the result": (P(), {"r": P()}, lambda t: {"s": t[0]}, "(?s)shard_map out_specs.*('r',)"),
    "a result that differs": (([P("d"), None],), {"r": P()}, lambda t: {"r": t[0]}, r"out_specs\['r'\] is P\(\)"),
}


@pytest.mark.parametrize("name", WRONG_SPECS)
def test_wrong_specs_name_the_place(mesh: Any, name: str) -> None:
    in_specs, out_specs, function, message = WRONG_SPECS[name]
    mapped = filter_shard_map(lambda t: function(t), mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    with pytest.raises((ValueError, TypeError), match=message):
        partax.filter_jit(mapped)([ROWS, array(3)])
