"""Sharded arrays go through every call as through jax.jit: same values, same shardings, one trace, and no gather."""

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

import sharded_training as training
from conftest import TraceCounter
from meshes import Auto, Explicit, mesh_of, on
from partax import filter_jit, filter_shard
from trees import array, assert_same


@pytest.fixture(scope="module")
def on_one_device() -> Any:
    return training.train(filter_jit(training.step), training.start(), training.data())


@pytest.mark.parametrize(
    ("strategy", "kind"), [("data", Auto), pytest.param("data", Explicit, marks=pytest.mark.slow), ("model", Auto)]
)
def test_training_on_all_devices(
    strategy: str, kind: AxisType, devices: list[Any], on_one_device: Any, traces: TraceCounter, compiled: list[str]
) -> None:
    mesh = mesh_of(devices, 4, 2, names=("data", "model"), kind=kind)
    step = filter_jit(lambda *args: training.step(*traces.seen(args)))
    layout, of_batch = training.layouts(strategy, mesh, training.start())
    with jax.set_mesh(mesh) if kind is Explicit else contextlib.nullcontext():
        begin = filter_shard(training.start(), layout)
        batch = filter_shard(training.data(), of_batch)
        compiled.clear()
        model, state, value = training.train(step, begin, batch)
        assert traces.count == 1 and len(compiled) == 1 and step.cache_info().static_keys == 1

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


def test_another_sharding_traces_and_compiles_as_jax_jit_does(
    mesh: Mesh, devices: list[Any], traces: TraceCounter, compiled: list[str]
) -> None:
    explicit = mesh_of(devices, kind=Explicit)
    half, other_half = mesh_of(devices[:4]), mesh_of(devices[4:])
    places = [None, on(mesh, "d"), on(mesh), on(explicit, "d"), devices[2], on(half, "d"), on(other_half, "d")]

    f = lambda tree: jax.tree.map(lambda x: x * 2, traces.seen(tree))

    def seen(call: Callable[[Any], Any]) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for place in places * 2:
            x = array(16) if place is None else jax.device_put(array(16), place)
            before = traces.count
            compiled.clear()
            out = call({"x": x})["x"]
            found.append((traces.count - before, len(compiled)))
            assert out.sharding.is_equivalent_to(x.sharding, 1) and out.committed == x.committed
            assert_same(out, array(16) * 2)
        return found

    ours, theirs = seen(filter_jit(f)), seen(jax.jit(lambda tree: f(tree)))
    assert ours == theirs
    assert ours[len(places) :] == [(0, 0)] * len(places)


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
