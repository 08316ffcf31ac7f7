"""lower, trace and eval_shape run ahead of time, from shapes or arrays, with statics kept exact."""

from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.serialize_executable import serialize

from conftest import TraceCounter
from meshes import Explicit, mesh_of, on
from partax import filter_jit
from trees import Cell, add_one, array, assert_same, is_array, make_model, samples

Shape = jax.ShapeDtypeStruct
VECTOR = Shape((3,), jnp.float32)


@filter_jit
def step(x: jax.Array, n: int = 2, *, name: str = "s") -> Any:
    return x * n, name, x.shape[0]


def test_lower_compile_and_call() -> None:
    for lowered in (step.lower(VECTOR, 3), step.lower(array(3), n=3), step.lower(n=3, x=VECTOR)):
        assert "stablehlo.multiply" in lowered.as_text() and "mul" in str(step.trace(VECTOR, 3).jaxpr)
        compiled = lowered.compile()
        for found in (compiled(array(3), 3), compiled(array(3), n=3), compiled(n=3, x=np.arange(3, dtype="f4"))):
            assert_same(found, (array(3) * 3, "s", 3))


def test_lowering_runs_and_donates_nothing(traces: TraceCounter) -> None:
    ran: list[Any] = []

    @filter_jit(donate="all")
    def f(x: jax.Array) -> jax.Array:
        traces.tick()
        jax.debug.callback(lambda v: ran.append(v), x)
        return x + 1

    x = array(3)
    f.lower(x).compile()
    f.eval_shape(x)
    f.trace(x)
    jax.effects_barrier()
    assert not x.is_deleted() and ran == [] and traces.count >= 1


def test_every_tree_lowers_from_shapes() -> None:
    shapes = jax.tree.map(lambda x: jax.eval_shape(lambda v: v, x) if is_array(x) else x, samples())
    compiled = filter_jit(add_one).lower(shapes).compile()
    for _ in range(2):
        assert_same(compiled(samples()), add_one(samples()))


REFUSED: list[tuple[Any, Any, str]] = [
    *(((array(3), n), {}, f"^`n`: compiled with 2, called with {n!r}; ") for n in (True, 2.0)),
    ((array(3),), {"n": 3}, "^`n`: compiled with 2, called with 3; "),
    ((array(3, 1), 2), {}, r"^`x`: compiled for float32\[3\], called with float32\[3,1\]; "),
    ((np.arange(3), 2), {}, r"^`x`: compiled for float32\[3\], called with int32\[3\]; "),
    (([array(3)], 2), {}, "compiled"),
    ((array(3),), {}, r"\(at n\)"),  # a default that is left out is not an argument
    ((), {"n": 2}, "'x'"),
]


@pytest.mark.parametrize(("args", "kwargs", "message"), REFUSED, ids=str)
def test_a_program_refuses_what_it_was_not_compiled_for(args: Any, kwargs: Any, message: str) -> None:
    compiled = step.lower(VECTOR, n=2).compile()
    with pytest.raises(TypeError, match=message):
        compiled(*args, **kwargs)
    assert_same(compiled(array(3), n=2)[0], array(3) * 2)


def test_another_static_value_deep_inside_is_named_by_its_path() -> None:
    compiled = filter_jit(add_one).lower(make_model(scale=2)).compile()
    with pytest.raises(TypeError, match=r"tree\.layers\[0\]\.scale"):
        compiled(make_model(scale=7))
    assert_same(compiled(make_model(scale=2)), add_one(make_model(scale=2)))


def test_export_names_the_remedy() -> None:
    for use in (lambda: jax.export.export(step)(VECTOR), lambda: serialize(step.lower(VECTOR).compile())):
        with pytest.raises(AttributeError, match=r"pass JAX a `jax\.jit` of its arrays alone"):
            use()


def test_eval_shape_keeps_statics_and_structure() -> None:
    assert step.eval_shape(VECTOR, 3) == (VECTOR, "s", 3)
    assert step.eval_shape(array(4), name="t") == (Shape((4,), jnp.float32), "t", 4)
    found = filter_jit(lambda c: (c, [c.weight @ c.weight.T])).eval_shape(Cell(Shape((2, 3), jnp.float32), mode="m"))
    assert found == (Cell(Shape((2, 3), jnp.float32), mode="m"), [Shape((2, 2), jnp.float32)])


def test_input_shardings_are_given_by_path(split: jax.NamedSharding, everywhere: jax.NamedSharding) -> None:
    f = filter_jit(lambda tree, x, unused, n: tree["a"][0] * x * n)
    args = ({"a": [jax.device_put(array(8), split)]}, jax.device_put(array(8), everywhere), array(2), 3)
    shardings = f.lower(*args).compile().input_shardings
    assert list(shardings) == ["tree['a'][0]", "x", "unused"]
    assert shardings["tree['a'][0]"].is_equivalent_to(split, 1) and shardings["x"].is_equivalent_to(everywhere, 1)
    assert shardings["unused"] is None


def test_a_compiled_function_takes_what_its_trace_takes(traces: TraceCounter) -> None:
    f = filter_jit(lambda x, fun, config: (fun(traces.seen(x)), fun, config))
    scale = 2
    make = lambda: lambda x: x * scale
    compiled = f.lower(VECTOR, make(), {"a": (1, 2.0)}).compile()
    for x in (array(3), np.arange(3, dtype=np.float64)):
        fun = make()
        for call in (compiled, f):
            y, returned, config = call(x, config={"a": (1, 2.0)}, fun=fun)
            assert_same(y, array(3) * 2)
            assert returned is fun and config == {"a": (1, 2.0)}
    assert traces.count == 1


@pytest.mark.parametrize("place", ["none", "device", "split", "explicit"])
def test_shapes_of_the_result_have_the_shardings_of_jax(place: str, devices: list[Any]) -> None:
    places = {
        "device": devices[1],
        "split": on(mesh_of(devices), "d"),
        "explicit": on(mesh_of(devices, kind=Explicit), "d"),
    }
    model = array(8, 4) if place == "none" else jax.device_put(array(8, 4), places[place])
    f = lambda model, x: {"model": model, "x": x, "more": [model * 2, jnp.zeros(3)]}
    other = array(3) if place in ("none", "split") else np.ones(3, np.float32)
    ours, theirs = (jit(f).lower(model, other).compile().out_info for jit in (filter_jit, jax.jit))
    for our, their in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert our.shape == their.shape and our.sharding.is_equivalent_to(their.sharding, our.ndim)
    named = filter_jit(lambda model: (model, "name", model.sum())).lower(model).compile().out_info
    assert named[1] == "name" and named[0].sharding == model.sharding and named[2].sharding is not None
