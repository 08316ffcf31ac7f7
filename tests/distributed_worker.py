"""The program of each process of test_distributed.py, which leaves a file if everything is right."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "bench"))

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import partax
import process_groups
import sharded_training as training
from compiled_names import compiled_names
from partax import filter_jit, filter_shard

rank, count, port = map(int, sys.argv[1:4])
here, victim = Path(sys.argv[5]), int(sys.argv[6])


def train(mesh: Mesh, strategy: str, on_one_device: Any) -> None:
    """One trace, the parameters of one device, sums as the only collectives, and what is donated is gone."""
    layout, of_batch = training.layouts(strategy, mesh, training.start())
    begin = filter_shard(training.start(), layout)
    batch = filter_shard(training.data(), of_batch)
    call = filter_jit(training.step, donate="all")
    # Donated are the model, the state and the batch: each step has its own.
    model, state = filter_shard(training.start(), layout)
    first = training.arrays(model)
    for _ in range(training.STEPS):
        model, state, value = call(model, state, *(x.copy() for x in batch))
    with compiled_names() as names:
        model, state, value = call(model, state, *(x.copy() for x in batch))
    assert (call.cache_info().traces, names) == (1, [])
    assert all(one.is_deleted() for one in first)
    for one, two in zip(training.arrays((model, state)), training.arrays(begin), strict=True):
        assert one.sharding.is_equivalent_to(two.sharding, one.ndim) and not one.is_fully_addressable
        assert [s.data.shape for s in one.addressable_shards] == [s.data.shape for s in two.addressable_shards]
    shards = [s.data.shape for s in model.layers[1].weight.addressable_shards]
    assert shards == [(16, 16) if strategy == "data" else (16, 8)] * 4
    training.assert_close((model, state), on_one_device[:2])
    assert float(value) == pytest.approx(on_one_device[2], abs=training.TOLERANCE)
    if strategy == "model":  # one of the two is compiled twice for its text; the other's is like that of one process
        text = filter_jit(training.step).lower(*begin, *batch).compile().as_text()
        assert set(training.collectives(text)) == {"all-reduce"}


def trees_of_global_arrays(mesh: Mesh) -> None:
    split, everywhere = NamedSharding(mesh, P(("data", "model"))), NamedSharding(mesh, P())
    numbers = np.arange(16, dtype=np.float32)
    tree = filter_shard({"x": numbers, "y": [np.ones(3)], "n": 2}, {"x": split, "y": everywhere, "n": None})
    f = filter_jit(lambda tree: {**tree, "sum": tree["x"].sum() * tree["n"]})
    out = [f(tree) for _ in range(3)][-1]
    assert float(out["sum"]) == 240 and f.cache_info().traces == 1
    assert out["x"] is tree["x"] and out["y"][0] is tree["y"][0] and out["n"] == 2
    assert filter_jit(lambda a, b: (a, b + 1))(numbers, tree["x"])[0].sharding == everywhere

    gathered = multihost_utils.process_allgather(tree["x"], tiled=True)
    if rank == 0:
        partax.save(here / "x.safetensors", {"x": gathered})
    multihost_utils.sync_global_devices("saved")
    loaded = partax.load(here / "x.safetensors", like={"x": tree["x"]})["x"]
    assert loaded.sharding == split and all(np.array_equal(s.data, numbers[s.index]) for s in loaded.addressable_shards)
    with pytest.raises(TypeError, match=r"`\['a'\]\['x'\]`: found float32\[16\].*; gather it from all processes"):
        partax.save(here / "never.safetensors", {"a": tree})
    local = jax.device_put(jnp.asarray(numbers), jax.local_devices()[0])
    for value, place in (([local], split), (tree["x"], jax.local_devices()[0])):
        with pytest.raises(ValueError, match=r"^`tree\['a'\].*: found float32\[16\], expected"):
            filter_shard({"a": value}, place)


def die_in_training(mesh: Mesh) -> None:
    """One process is killed between two steps; the others go on until jax tells them."""
    layout, of_batch = training.layouts("data", mesh, None)
    model, state = filter_shard(training.start(), layout)
    batch = filter_shard(training.data(), of_batch)
    step = filter_jit(training.step)
    for i in range(1_000_000):
        model, state, value = step(model, state, *batch)
        value.block_until_ready()
        if i == 20 and rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    process_groups.join(rank, count, port, float(sys.argv[4]))
    devices = np.array(jax.devices()).reshape(4, 2)
    assert (devices.size, len(jax.local_devices())) == (8, 4)
    mesh = Mesh(devices, ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    on_one_device = training.train(filter_jit(training.step), training.start(), training.data(), training.STEPS + 1)
    for strategy in ("data", "model"):
        train(mesh, strategy, on_one_device)
    trees_of_global_arrays(mesh)
    (here / f"{rank}.done").touch()
    die_in_training(mesh)


main()
