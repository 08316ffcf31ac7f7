"""Sharded arrays go through every call as through jax.jit: same values, same shardings, one trace, and no gather."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

import sharded_training as training
from compiled_names import compiled_names
from conftest import TraceCounter
from meshes import Auto, Explicit, mesh_of, on
from partax import filter_jit, filter_shard
from trees import array, assert_same


@pytest.fixture
def executables() -> Iterator[Callable[[], int]]:
    """How many programs XLA has compiled since the last call."""
    with compiled_names() as names:

        def take() -> int:
            taken = len(names)
            names.clear()
            return taken

        yield take


# --- Training


@pytest.fixture(scope="module")
def on_one_device() -> Any:
    return training.train(filter_jit(training.step), training.start(), training.data())


@pytest.mark.parametrize(("strategy", "kind"), [("data", Auto), ("data", Explicit), ("model", Auto)])
def test_training_on_all_devices(
    strategy: str,
    kind: AxisType,
    devices: list[Any],
    on_one_device: Any,
    traces: TraceCounter,
    executables: Callable[[], int],
) -> None:
    mesh = mesh_of(devices, 4, 2, names=("data", "model"), kind=kind)

    @filter_jit
    def step(*args: Any) -> Any:
        traces.tick()
        return training.step(*args)

    layout, of_batch = training.layouts(strategy, mesh, training.start())
    with jax.set_mesh(mesh) if kind is Explicit else contextlib.nullcontext():
        begin = filter_shard(training.start(), layout)
        batch = filter_shard(training.data(), of_batch)
        executables()
        model, state, value = training.train(step, begin, batch)
        assert traces.count == 1 and executables() == 1 and step.cache_info().static_keys == 1
        assert step.report().traces[0].fast_path

    training.assert_close((model, state), on_one_device[:2])
    assert value == pytest.approx(on_one_device[2], abs=training.TOLERANCE)
    for before, after in zip(training.arrays(begin), training.arrays((model, state)), strict=True):
        assert after.sharding.is_equivalent_to(before.sharding, after.ndim)
        assert [s.data.shape for s in after.addressable_shards] == [s.data.shape for s in before.addressable_shards]
    if strategy == "model":
        assert {s.data.shape for s in model.layers[1].weight.addressable_shards} == {(16, 8)}
    if (strategy, kind) == ("data", Auto):  # the text of that for tensor parallelism is looked at below
        assert set(training.collectives(step.lower(*begin, *batch).compile().as_text())) == {"all-reduce"}
        assert traces.count == 1


def test_training_with_shardings_as_options(
    devices: list[Any], on_one_device: Any, traces: TraceCounter, executables: Callable[[], int]
) -> None:
    """Batches are NumPy arrays; model and state are donated."""
    mesh = mesh_of(devices, 4, 2, names=("data", "model"))
    begin = training.start()
    layout, of_batch = training.layouts("model", mesh, begin)

    @filter_jit(
        donate=("model", "state"),
        in_shardings=(*layout, of_batch, of_batch),
        out_shardings=(*layout, None),
    )
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        traces.tick()
        return training.step(model, state, x, y)

    model, state = filter_shard(begin, layout)
    executables()
    for _ in range(training.STEPS):
        given = training.arrays((model, state))
        model, state, _ = step(model, state, *training.data())
        assert all(one.is_deleted() for one in given)
    assert traces.count == 1 and executables() == 1
    training.assert_close((model, state), on_one_device[:2])
    placed = filter_shard(training.start(), layout)
    for want, found in zip(training.arrays(placed), training.arrays((model, state)), strict=True):
        assert found.sharding.is_equivalent_to(want.sharding, found.ndim)


def test_what_is_donated_is_reused_shard_by_shard(devices: list[Any]) -> None:
    mesh = mesh_of(devices, 4, 2, names=("data", "model"))
    layout, of_batch = training.layouts("model", mesh, training.start())
    model, state = filter_shard(training.start(), layout)
    step = filter_jit(training.step, donate=("model", "state"))
    batch = filter_shard(training.data(), of_batch)
    old = model.layers[1].weight
    memory = {shard.data.unsafe_buffer_pointer() for shard in old.addressable_shards}
    donated = training.arrays((model, state))
    model, state, _ = step(model, state, *batch)
    assert all(one.is_deleted() for one in donated) and not any(one.is_deleted() for one in training.arrays(batch))
    everything = {
        shard.data.unsafe_buffer_pointer()
        for one in training.arrays((model, state))
        for shard in one.addressable_shards
    }
    assert memory <= everything


# --- What is part of the key


def test_another_sharding_traces_and_compiles_as_jax_jit_does(
    mesh: Mesh, devices: list[Any], traces: TraceCounter, executables: Callable[[], int]
) -> None:
    explicit = mesh_of(devices, kind=Explicit)
    half, other_half = mesh_of(devices[:4]), mesh_of(devices[4:])
    places = [None, on(mesh, "d"), on(mesh), on(explicit, "d"), on(explicit), devices[2], on(half, "d")]
    places += [on(other_half, "d"), devices[0]]

    def f(tree: Any) -> Any:
        traces.tick()
        return jax.tree.map(lambda x: x * 2, tree)

    def seen(call: Callable[[Any], Any]) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for place in places * 2:
            x = array(16) if place is None else jax.device_put(array(16), place)
            before = traces.count
            executables()
            out = call({"x": x})["x"]
            found.append((traces.count - before, executables()))
            assert out.sharding.is_equivalent_to(x.sharding, 1) and out.committed == x.committed
            assert_same(out, array(16) * 2)
        return found

    ours, theirs = seen(filter_jit(f)), seen(jax.jit(lambda tree: f(tree)))
    assert ours == theirs
    assert ours[len(places) :] == [(0, 0)] * len(places)


def test_what_options_place_traces_as_often_as_by_jax_jit(mesh: Mesh, traces: TraceCounter) -> None:
    """A model that is nowhere yet is traced again when it has come back from the mesh; jax.jit does so too."""

    def f(model: jax.Array, x: Any) -> jax.Array:
        traces.tick()
        return model + x.sum()

    options = {"in_shardings": (on(mesh), on(mesh, "d")), "out_shardings": on(mesh)}
    counts: list[list[int]] = []
    for call in (filter_jit(f, **options), jax.jit(lambda model, x: f(model, x), **options)):
        model, counted = array(8), []
        for _ in range(4):
            before = traces.count
            model = call(model, np.ones(16, np.float32))
            counted.append(traces.count - before)
        counts.append(counted)
    assert counts[0] == counts[1] and counts[0][2:] == [0, 0]


def test_an_array_sharded_anew_retraces_once_at_most(mesh: Mesh, traces: TraceCounter) -> None:
    @filter_jit
    def f(tree: Any, n: int) -> Any:
        traces.tick()
        return tree["x"] * n, tree["y"], n

    split, whole = on(mesh, "d"), on(mesh)
    for x, y in [(split, whole), (whole, split), (split, split), (whole, whole)] * 3:
        tree = {"x": jax.device_put(array(16), x), "y": jax.device_put(array(8), y)}
        doubled, same, _ = f(tree, 2)
        assert same is tree["y"] and doubled.sharding.is_equivalent_to(x, 1)
    assert traces.count == 1 and f.cache_info().static_keys == 1


# --- Meshes in context


@filter_jit
def laid_out(tree: Any) -> Any:
    """By whatever mesh is in context; the static output tells which one the trace has seen."""
    return filter_shard(tree["x"] + 1, P(tree["axis"])), dict(jax.sharding.get_abstract_mesh().shape)


def test_the_mesh_in_context_is_part_of_the_key(devices: list[Any]) -> None:
    laid_out.clear_cache()
    meshes = [
        mesh_of(devices),
        mesh_of(devices, 4, 2, names=("d", "e")),
        mesh_of(devices[:4]),
        mesh_of(devices[4:]),  # the same abstract mesh as the last one: no new trace, other devices
        mesh_of(devices[:4][::-1]),
        mesh_of(devices, kind=Explicit),
    ]
    for _ in range(2):
        for mesh in meshes:
            with jax.set_mesh(mesh):
                out, shape = laid_out({"x": np.arange(16, dtype=np.float32), "axis": "d"})
            assert out.sharding.is_equivalent_to(on(mesh, "d"), 1) and out.sharding.mesh == mesh
            assert [s.device for s in out.addressable_shards] == list(on(mesh, "d").devices_indices_map((16,)))
            assert shape == dict(mesh.shape)
            np.testing.assert_array_equal(out, np.arange(1, 17))
    assert laid_out.cache_info().traces == 4
    with pytest.raises((RuntimeError, ValueError), match=r"tree|mesh"):
        laid_out({"x": array(16), "axis": "d"})
    with jax.set_mesh(meshes[0]):
        assert laid_out({"x": np.zeros(16, np.float32), "axis": "d"})[1] == {"d": 8}


def test_a_mesh_without_devices_in_context_is_part_of_the_key(mesh: Mesh, devices: list[Any]) -> None:
    @filter_jit
    def f(x: Any) -> Any:
        return x + 1, dict(jax.sharding.get_abstract_mesh().shape)

    other = mesh_of(devices, 2, 4, names=("a", "b"))
    for _ in range(2):
        for one in (mesh, other):
            with jax.sharding.use_abstract_mesh(one.abstract_mesh):
                assert f(array(4))[1] == dict(one.shape)
            with jax.set_mesh(one):
                assert f(np.zeros(4))[1] == dict(one.shape)
        assert f(array(4))[1] == {}
    assert f.cache_info().static_keys == 1


def test_forwarded_numpy_arrays_go_where_jax_jit_puts_them(mesh: Mesh) -> None:
    def f(x: Any, y: Any) -> Any:
        return x, y + 1

    ours, theirs = filter_jit(f), jax.jit(lambda x, y: f(x, y))
    y = jax.device_put(array(16), on(mesh, "d"))
    for context in (contextlib.nullcontext(), jax.set_mesh(mesh)):
        with context:
            (x, _), (want, _) = ours(np.ones(16, np.float32), y), theirs(np.ones(16, np.float32), y)
        assert x.sharding == want.sharding and x.committed == want.committed


# --- What else takes trees


def test_shard_map_around_and_inside(mesh: Mesh) -> None:
    def inner(tree: Any) -> Any:
        return {"x": jax.lax.psum(tree["x"] * 2, "d"), "n": jnp.float32(tree["x"].shape[0])}

    around = filter_jit(lambda x, k: jax.shard_map(lambda x: x * k, mesh=mesh, in_specs=P("d"), out_specs=P("d"))(x))
    assert_same(around(array(16), 3), array(16) * 3)
    inside = jax.shard_map(lambda x: filter_jit(inner)({"x": x}), mesh=mesh, in_specs=P("d"), out_specs=P())
    out = inside(array(16))
    assert float(out["n"]) == 2
    assert_same(out["x"], array(16).reshape(8, 2).sum(0) * 2)


def test_compiled_ahead_of_time_for_shards(devices: list[Any]) -> None:
    mesh = mesh_of(devices, 4, 2, names=("data", "model"))
    layout, of_batch = training.layouts("model", mesh, training.start())
    shapes = eqx.filter_eval_shape(training.start)
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), training.data())
    step = filter_jit(training.step)
    compiled = step.lower(*filter_shard(shapes, layout), *filter_shard(batch, of_batch)).compile()
    assert compiled.input_shardings["model.layers[1].weight"].is_equivalent_to(on(mesh, None, "model"), 2)
    assert set(training.collectives(compiled.as_text())) == {"all-reduce"}
    begin, given = filter_shard(training.start(), layout), filter_shard(training.data(), of_batch)
    model, state, value = compiled(*begin, *given)
    want = step(*begin, *given)
    assert_same((model, state, value), want)
    with pytest.raises(ValueError, match=r"model\.layers\[1\]\.weight"):
        compiled(filter_shard(training.start()[0], on(mesh)), begin[1], *given)
