"""Guards the promise that filter_shard_map gives each device its part of any tree by prefixes of the user's own
arguments and result, as jax.shard_map does on arrays, and names the path of what does not fit."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import partax
from partax import filter_shard_map
from transformed import assert_close_trees
from trees import Layer, array, assert_same

X = array(8, 3)
LAYER = Layer(array(2, 3), array(2), activation=jnp.sin)


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))


def apply(layer: Any, x: Any, n: Any = 1) -> Any:
    return {"y": jax.vmap(layer)(x) * n, "mean": jax.lax.pmean(jnp.mean(x), "d"), "s": ("s", n), "rows": x.shape[0]}


SPECS: dict[str, tuple[Any, Any]] = {
    "tuple": ((None, P("d"), None), {"y": P("d"), "mean": P(), "s": None, "rows": None}),
    "prefix": (
        (Layer(None, P(), rate=None, activation=jnp.sin), P("d"), P()),
        {"y": P("d"), "mean": None, "s": P(), "rows": None},
    ),
    "by name": ({"x": P("d")}, {"y": P("d"), "mean": P(), "s": None, "rows": None}),
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("jit", [False, True])
def test_equals_jax_on_arrays(mesh: Any, name: str, jit: bool) -> None:
    in_specs, out_specs = SPECS[name]
    mapped = filter_shard_map(apply, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    out = (partax.filter_jit(mapped) if jit else mapped)(LAYER, X, 2)
    assert_close_trees(out, {"y": jax.vmap(LAYER)(X) * 2, "mean": jnp.mean(X), "s": ("s", 2), "rows": 1})
    assert out["y"].sharding.spec == P("d")


def test_modules_that_are_called_and_gradients(mesh: Any) -> None:
    loss = filter_shard_map(
        lambda layer, x: jax.lax.pmean(jnp.mean(jax.vmap(layer)(x)), "d"),
        mesh=mesh,
        in_specs=(None, P("d")),
        out_specs=P(),
    )
    assert_close_trees(
        partax.filter_grad(loss)(LAYER, X), partax.filter_grad(lambda m, x: jnp.mean(jax.vmap(m)(x)))(LAYER, X)
    )
    each = filter_shard_map(jax.vmap(LAYER), mesh=mesh, in_specs=P("d"), out_specs=P("d"))
    assert_close_trees(each(X), jax.vmap(LAYER)(X))
    assert_close_trees(
        partax.filter_jit(lambda m, x: filter_shard_map(jax.vmap(m), mesh=mesh, in_specs=P("d"), out_specs=P("d"))(x))(
            LAYER, X
        ),
        jax.vmap(LAYER)(X),
    )


def test_the_mesh_and_the_specs_of_the_context() -> None:
    explicit = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(explicit):
        x = jax.device_put(X, P("d"))
        out = filter_shard_map(lambda x, s: (x * 2, s, x.shape), out_specs=(P("d"), None, None))(x, "s")
    assert_same(out, (X * 2, "s", (1, 3)))


WRONG: dict[str, tuple[Any, Any, str]] = {
    "entries": ((P("d"),), P(), r"in_specs: found 1 entries, expected one for each of the 2 arguments .*\(layer, x\)"),
    "prefix": ((None, {"a": P()}), P(), "`x`: found"),
    "result": (
        (None, P("d")),
        {"y": P("d")},
        r"`the result`: found a `dict` with the keys \['mean', 'rows', 's', 'y'\]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_path(mesh: Any, name: str) -> None:
    in_specs, out_specs, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        filter_shard_map(apply, mesh=mesh, in_specs=in_specs, out_specs=out_specs)(LAYER, X)


@pytest.mark.parametrize("specs", [((None, "d"), P()), ((None, P("d")), {"y": 3})])
def test_what_is_no_spec_is_a_type_error(mesh: Any, specs: Any) -> None:
    with pytest.raises(TypeError, match=r"found ('d'|3) in the specs, expected a `jax.sharding.PartitionSpec`"):
        filter_shard_map(apply, mesh=mesh, in_specs=specs[0], out_specs=specs[1])(LAYER, X)


class Each(eqx.Module):
    layer: Layer

    @filter_shard_map(mesh=None, in_specs=(None, P("d")), out_specs=P("d"))
    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.vmap(self.layer)(x)


def test_as_a_method(mesh: Any) -> None:
    with jax.set_mesh(mesh):
        assert_close_trees(Each(LAYER)(X), jax.vmap(LAYER)(X))
    assert repr(Each.__call__) == "<partax.filter_shard_map of Each.__call__>"
