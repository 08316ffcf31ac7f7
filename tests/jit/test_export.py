"""Guards the promise that `jax.export` and `serialize_executable` take what filter_jit makes: in the trees of the
user's own arguments and result, None for all that is static."""

from __future__ import annotations

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
from compiled_names import compiled_names
from conftest import TraceCounter
from meshes import mesh_of, on
from partax import filter_jit
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


def test_arrays_alone_are_called_as_the_function_is() -> None:
    @filter_jit
    def step(params: dict[str, jax.Array], x: jax.Array) -> Any:
        return {"b": params["b"] + x, "a": params["a"] * x}, x.sum()

    params, x = {"a": array(3), "b": array(3, start=4)}, array(3, start=1)
    for call in both_ways(step, params, x):
        assert_same(call(params, x), step(params, x))
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (params, x))
    for call in both_ways(step, *shapes):
        assert_same(call(params, x), step(params, x))


@pytest.mark.parametrize("returned", ["nothing else", "an argument", "the same twice", "another order"])
def test_results(returned: str) -> None:
    def function(x: jax.Array, y: jax.Array) -> Any:
        z = x - y
        return {
            "nothing else": (z, "text"),
            "an argument": {"z": z, "x": x, "n": 3},
            "the same twice": [z, z, y],
            "another order": (y, x),
        }[returned]

    f, x, y = filter_jit(function), array(3, start=7), array(3)
    expected = eqx.filter(f(x, y), eqx.is_array)
    for call in both_ways(f, x, y):
        assert_same(call(x, y), expected)


def test_keywords_in_any_order() -> None:
    f = filter_jit(lambda z, a, *more, m, **rest: (z - 2 * a, m, rest["k"] + 1, *more))
    arguments = {"m": array(2, start=3), "a": array(2, start=5), "k": array(2, start=7), "z": array(2, start=11)}
    for call in both_ways(f, **arguments):
        assert_same(call(**arguments), f(**arguments))
    by_position = (arguments["z"], arguments["a"], array(2, start=13))
    named = {"m": arguments["m"], "k": arguments["k"]}
    for call in both_ways(f, *by_position, **named):
        assert_same(call(*by_position, **named), f(*by_position, **named))


def test_static_leaves_are_none() -> None:
    f = filter_jit(lambda x, n, tree: (x * n + tree["w"], n))
    arguments = (array(3), 4, {"w": array(3, start=1), "activation": jnp.tanh})
    arrays = eqx.filter(arguments, eqx.is_array)
    for call in both_ways(f, *arguments):
        assert_same(call(*arrays), (f(*arguments)[0], None))
        with pytest.raises((TypeError, ValueError)):
            call(*arguments)


def test_a_module() -> None:
    model, x = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0)), array(3)
    arrays = eqx.filter(model, eqx.is_array)
    f = filter_jit(lambda model, x: model(x))
    assert_close(loaded(f.lower(model, x).compile())(arrays, x), model(x))
    assert_close(export(f)(model, x).call(arrays, x), model(x))
    # The model itself, and a method: its arrays are constants.
    for call in both_ways(filter_jit(model), x):
        assert_close(call(x), model(x))


class Scale(eqx.Module):
    by: jax.Array

    @filter_jit
    def scale(self, x: jax.Array, n: int = 2) -> jax.Array:
        return self.by * x * n

    @filter_jit(trace=("n",))
    def scaled(self, x: jax.Array, n: Any) -> jax.Array:
        return self.by * x * n


def test_methods() -> None:
    scale, x = Scale(array(3, start=1)), array(3)
    for call in both_ways(scale.scale, x):
        assert_same(call(x), scale.scale(x))
    exported = export(Scale.scale)(scale, x, 3)
    assert_same(exported.call(scale, x, None), scale.scale(x, 3))
    assert_same(export(scale.scaled)(x, 2).call(x, jnp.int32(2)), scale.scale(x, 2))


def test_shapes_that_are_symbols(traces: TraceCounter) -> None:
    f = filter_jit(lambda x, n: (traces.tick(), x * n)[1])
    (b,) = jax.export.symbolic_shape("b")
    exported = export(f)(jax.ShapeDtypeStruct((b, 2), jnp.float32), 3)
    assert traces.count == 1
    for size in (1, 5):
        assert exported.call(jnp.ones((size, 2)), None).tolist() == [[3.0, 3.0]] * size


def test_the_exported_program() -> None:
    def named(x: jax.Array) -> jax.Array:
        return jnp.sin(x)

    exported = export(filter_jit(named), platforms=("cpu", "cuda"))(array(3))
    assert (exported.fun_name, exported.platforms) == ("named", ("cpu", "cuda"))
    with_derivative = through_bytes(export(filter_jit(named))(array(3)), vjp_order=1)
    assert_close(jax.grad(lambda x: with_derivative.call(x).sum())(array(3)), jnp.cos(array(3)))


@pytest.mark.parametrize("returns_it", [False, True])
@pytest.mark.parametrize("donate", ["all", "all-except-first", ("y",), ("more",)])
def test_donation_is_kept(donate: Any, returns_it: bool) -> None:
    def function(x: jax.Array, y: jax.Array, *more: jax.Array, k: jax.Array) -> Any:
        return x + 1, y + 1, more[0] + 1, k + 1, x if returns_it else None

    f = filter_jit(function, donate=donate)
    names = {"all": "xymk", "all-except-first": "ymk", ("y",): "y", ("more",): "m"}[donate]
    call = loaded(f.lower(*[array(3)] * 3, k=array(3)).compile())
    x, y, m, k = (array(3) for _ in range(4))
    result = call(x, y, m, k=k)
    assert result[0].tolist() == [1.0, 2.0, 3.0]
    assert [v.is_deleted() for v in (x, y, m, k)] == [name in names for name in "xymk"]


def test_compiler_options() -> None:
    # A result that is an argument has the program compiled once more; a compiler option may then be given only once.
    options: dict[str, Any] = {"xla_cpu_enable_fast_math": True}
    for f in (filter_jit(lambda x: (x + 1, x), compiler_options=options), filter_jit(lambda x: x + 1)):
        call = loaded(f.lower(array(3)).compile(options))
        assert_same(call(array(3)), f(array(3)))


def test_a_program_has_no_other_attributes() -> None:
    compiled = filter_jit(lambda x: x).lower(array(3)).compile()
    assert not any(hasattr(compiled, name) for name in ("_repr_png_", "runtime", "__deepcopy__", "_ipython_display_"))


def test_nothing_is_compiled_again_where_nothing_needs_it(traces: TraceCounter) -> None:
    f = filter_jit(lambda tree, n: (traces.tick(), {"b": tree["a"] * n, "n": n})[1])
    compiled = f.lower({"a": array(3)}, 2).compile()
    with compiled_names() as names:
        serialize_executable.serialize(compiled)
        assert names == []
        serialize_executable.serialize(filter_jit(lambda x: (x, x + 1)).lower(array(3)).compile())
        assert len(names) == 2
    assert traces.count == 1


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
    with pytest.raises(TypeError, match=r"partax\.nnx\.jit.*nnx\.split"):
        export(f)(model, x)
    with pytest.raises(TypeError, match=r"partax\.nnx\.jit.*nnx\.split"):
        serialize_executable.serialize(f.lower(model, x).compile())
    # As the message says.
    graph, state = nnx.split(model)
    functional = filter_jit(lambda state, x: nnx.merge(graph, state)(x))
    assert_close(export(functional)(state, x).call(state, x), model(x))
