"""What each of the processes of test_distributed.py does: it writes what it has seen, and the test looks at it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "bench"))

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import partax
import processes
import sharded_training as training
from compiled_names import compiled_names
from partax import filter_jit, filter_shard

rank, count, port = map(int, sys.argv[1:4])
here, victim = Path(sys.argv[5]), int(sys.argv[6])


def same_shards(tree: Any, like: Any) -> bool:
    """The same shardings, and of each array the same parts in this process."""
    pairs = zip(training.arrays(tree), training.arrays(like), strict=True)
    return all(
        one.sharding.is_equivalent_to(two.sharding, one.ndim)
        and [s.data.shape for s in one.addressable_shards] == [s.data.shape for s in two.addressable_shards]
        for one, two in pairs
    )


def message(call: Any) -> str:
    """What a call fails with."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def trained(mesh: Mesh, strategy: str) -> dict[str, Any]:
    traces = 0

    def step(*args: Any) -> Any:
        nonlocal traces
        traces += 1
        return training.step(*args)

    layout, of_batch = training.layouts(strategy, mesh, training.start())
    begin = filter_shard(training.start(), layout)
    batch = filter_shard(training.data(), of_batch)
    call = filter_jit(step, donate=("args",))
    # Donated are the model, the state and the batch: each step has its own.
    model, state = filter_shard(training.start(), layout)
    first = training.arrays(model)
    for _ in range(training.STEPS):
        model, state, value = call(model, state, *(x.copy() for x in batch))
    with compiled_names() as names:
        model, state, value = call(model, state, *(x.copy() for x in batch))
    np.savez(here / f"{strategy}{rank}.npz", *training.local_values((model, state)))
    # One of the two is compiled twice for its text; the other's is like that of one process.
    text = filter_jit(training.step).lower(*begin, *batch).compile().as_text() if strategy == "model" else ""
    return {
        "value": float(value),
        "traces": traces,
        "executables of a later step": len(names),
        "same shards": same_shards((model, state), begin),
        "donated": all(one.is_deleted() for one in first),
        "fully addressable": [one.is_fully_addressable for one in training.arrays(model)],
        "shards": [s.data.shape for s in model.layers[1].weight.addressable_shards],
        "collectives": dict(training.collectives(text)),
        "fast path": call.report().traces[0].fast_path,
    }


def trees_of_global_arrays(mesh: Mesh) -> dict[str, Any]:
    split, everywhere = NamedSharding(mesh, P(("data", "model"))), NamedSharding(mesh, P())
    numbers = np.arange(16, dtype=np.float32)
    tree = filter_shard({"x": numbers, "y": [np.ones(3)], "n": 2}, {"x": split, "y": everywhere, "n": None})
    traces = 0

    @filter_jit
    def f(tree: Any) -> Any:
        nonlocal traces
        traces += 1
        return {**tree, "sum": tree["x"].sum() * tree["n"]}

    out = [f(tree) for _ in range(3)][-1]
    with contextlib.ExitStack() as stack:
        lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())
        logging.getLogger("partax").addHandler(handler)
        stack.callback(logging.getLogger("partax").removeHandler, handler)
        stack.enter_context(partax.explain())
        for _ in range(2):
            f({**tree, "x": filter_shard(tree["x"], everywhere)})

    arrays, rest = partax.partition(tree, partax.is_array)
    spec, flat, others = partax.flat_partition(tree, partax.is_array)
    gathered = multihost_utils.process_allgather(tree["x"], tiled=True)
    if rank == 0:
        partax.save(here / "x.safetensors", {"x": gathered})
    multihost_utils.sync_global_devices("saved")
    loaded = partax.load(here / "x.safetensors", like={"x": tree["x"]})
    numpy_too = [jit(lambda a, b: (a, b + 1))(np.ones(3, np.float32), tree["x"])[0] for jit in (filter_jit, jax.jit)]
    local = jax.device_put(jnp.asarray(numbers), jax.local_devices()[0])
    return {
        "sum": float(out["sum"]),
        "traces": traces,
        "explained": lines,
        "forwarded": out["x"] is tree["x"] and out["y"][0] is tree["y"][0] and out["n"] == 2,
        "combined": partax.combine(rest, arrays)["x"] is tree["x"],
        "flat": partax.flat_combine(spec, others, flat)["x"] is tree["x"],
        "forwarded NumPy array": numpy_too[0].sharding == numpy_too[1].sharding == everywhere,
        "leaves": partax.summary(tree).total.leaves,
        "save": message(lambda: partax.save(here / "never.safetensors", {"a": tree})),
        "saved": (here / "never.safetensors").exists(),
        "save replicated": message(lambda: partax.save(here / f"y{rank}.safetensors", {"y": tree["y"][0]})),
        "loaded": loaded["x"].sharding == tree["x"].sharding
        and all(np.array_equal(s.data, numbers[s.index]) for s in loaded["x"].addressable_shards),
        "local array": message(lambda: filter_shard({"a": [local]}, split)),
        "to one device": message(lambda: filter_shard({"a": tree["x"]}, jax.local_devices()[0])),
        "closure": message(lambda: filter_jit(lambda y: y + tree["x"])(tree["x"])),
        "static": message(lambda: filter_jit(lambda s: 0)(partax.Static(tree["x"]))),
    }


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
    processes.join(rank, count, port, float(sys.argv[4]))
    devices = np.array(jax.devices()).reshape(4, 2)
    mesh = Mesh(devices, ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    seen = {
        "devices": [len(jax.devices()), len(jax.local_devices())],
        "data": trained(mesh, "data"),
        "model": trained(mesh, "model"),
        "trees": trees_of_global_arrays(mesh),
    }
    (here / f"{rank}.json").write_text(json.dumps(seen))
    if victim >= 0:
        die_in_training(mesh)


main()
