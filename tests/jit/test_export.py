"""Guards the promise that `jax.export` and `serialize_executable` take what filter_jit makes: in the trees of the
user's own arguments and result, None for all that is static."""

import importlib.util
from typing import Any

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import pytest
from flax import nnx
from jax.experimental import serialize_executable

import partax
import partax.nnx
from conftest import TraceCounter
from meshes import mesh_of, on
from partax import filter_jit
from transformed import assert_close_trees
from trees import array, assert_close, assert_same

# What jax has read from its cache of programs, it cannot serialize.
pytestmark = pytest.mark.compiled_anew

export = jax.export.export


def loaded(compiled: Any, devices: list[Any] | None = None) -> Any:
    """What comes back of a compiled program that goes through bytes."""
    parts = serialize_executable.serialize(compiled)
    return serialize_executable.deserialize_and_load(*parts, execution_devices=devices or jax.devices()[:1])


def through_bytes(exported: Any, vjp_order: int = 0) -> Any:
    """An exported program that goes through bytes, where what jax needs for that is installed."""
    if importlib.util.find_spec("flatbuffers") is None:
        return exported
    return jax.export.deserialize(exported.serialize(vjp_order))


def both_ways(f: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """The callables that `jax.export` and `serialize_executable` make of a call."""
    return [through_bytes(export(f)(*args, **kwargs)).call, loaded(f.lower(*args, **kwargs).compile())]


class Scale(eqx.Module):
    by: jax.Array

    @filter_jit
    def scale(self, x: jax.Array, n: int = 2) -> jax.Array:
        return self.by * x * n


SCALE, MODEL, X = Scale(array(3, start=1)), eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0)), array(3, start=7)
NAMED = {"m": array(2, start=3), "a": array(2, start=5), "k": array(2, start=7), "z": array(2, start=11)}
by_name = filter_jit(lambda z, a, *more, m, **rest: (z - 2 * a, m, rest["k"] + 1, *more))
CALLS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "trees": (filter_jit(lambda p, x: ({"b": p["b"] + x, "a": p["a"] * x}, x.sum())), ({"a": X, "b": X + 1}, X), {}),
    "another order": (filter_jit(lambda x, y: (y, x)), (X, array(3)), {}),
    "by position and by name": (by_name, (NAMED["z"], NAMED["a"], array(2)), {"m": NAMED["m"], "k": NAMED["k"]}),
    "static leaves": (filter_jit(lambda x, n, t: (x * n + t["w"], n)), (X, 4, {"w": X, "activation": jnp.tanh}), {}),
    "a module": (filter_jit(lambda model, x: model(x)), (MODEL, X), {}),
    "a module itself": (filter_jit(MODEL), (X,), {}),  # its arrays are constants
    "a method": (SCALE.scale, (X,), {}),
    "a method of the class": (Scale.scale, (SCALE, X, 3), {}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("from_shapes", [False, True])
def test_a_call_of_the_arrays_alone_gives_the_arrays_of_the_result(name: str, from_shapes: bool) -> None:
    f, args, kwargs = CALLS[name]
    arrays = eqx.filter((args, kwargs), eqx.is_array)
    shape = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf
    given = jax.tree.map(shape, (args, kwargs)) if from_shapes else (args, kwargs)
    for call in both_ways(f, *given[0], **given[1]):
        assert_close_trees(call(*arrays[0], **arrays[1]), eqx.filter(f(*args, **kwargs), eqx.is_array))
        if name == "static leaves":
            with pytest.raises((TypeError, ValueError)):
                call(*args)


def test_the_exported_program(traces: TraceCounter) -> None:
    def named(x: jax.Array, n: int) -> jax.Array:
        traces.tick()
        return jnp.sin(x) * n

    (b,) = jax.export.symbolic_shape("b")
    exported = export(filter_jit(named), platforms=("cpu", "cuda"))(jax.ShapeDtypeStruct((b, 2), jnp.float32), 3)
    assert (exported.fun_name, exported.platforms, traces.count) == ("named", ("cpu", "cuda"), 1)
    for size in (1, 5):
        assert_close(exported.call(array(size, 2), None), jnp.sin(array(size, 2)) * 3)
    with_derivative = through_bytes(export(filter_jit(jnp.sin))(array(3)), vjp_order=1)
    assert_close(jax.grad(lambda x: with_derivative.call(x).sum())(array(3)), jnp.cos(array(3)))


@pytest.mark.parametrize("returns_it", [False, True])
@pytest.mark.parametrize(("donate", "names"), [("all-except-first", "ymk"), (("y", "more"), "ym")])
def test_donation_is_kept(donate: Any, names: str, returns_it: bool) -> None:
    def function(x: jax.Array, y: jax.Array, *more: jax.Array, k: jax.Array) -> Any:
        return x + 1, y + 1, more[0] + 1, k + 1, x if returns_it else None

    f = filter_jit(function, donate=donate)
    call = loaded(f.lower(*[array(3)] * 3, k=array(3)).compile())
    given = x, y, m, k = [array(3) for _ in range(4)]
    assert_same(call(x, y, m, k=k)[0], array(3) + 1)
    assert [v.is_deleted() for v in given] == [name in names for name in "xymk"]


@pytest.mark.parametrize("returns_it", [False, True])
def test_shardings(devices: list[Any], returns_it: bool) -> None:
    over = on(mesh_of(devices[:2]), "d")
    f = filter_jit(lambda x, n: (x * n, x if returns_it else None), in_shardings=(over,), out_shardings=over)
    x = jax.device_put(array(4), over)
    for call in (loaded(f.lower(x, 3).compile(), devices[:2]), jax.jit(export(f)(x, 3).call)):
        result = call(x, None)[0]
        assert_same(result, array(4) * 3)
        assert result.sharding.is_equivalent_to(over, 1)


def test_what_is_changed_in_place_is_refused() -> None:
    f = partax.nnx.jit(lambda model, x: model(x))
    model, x = nnx.Linear(2, 2, rngs=nnx.Rngs(0)), array(1, 2)
    for use in (export(f), lambda *args: serialize_executable.serialize(f.lower(*args).compile())):
        with pytest.raises(TypeError, match=r"partax\.nnx\.jit.*nnx\.split"):
            use(model, x)
    # As the message says.
    graph, state = nnx.split(model)
    functional = filter_jit(lambda state, x: nnx.merge(graph, state)(x))
    assert_close(export(functional)(state, x).call(state, x), model(x))
