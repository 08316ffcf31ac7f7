"""What each process of bench/distributed.py does: trains in four forms over all devices, in turns, and writes it down.

What is timed is the same in each process and in the same order, or collective operations would wait for each other for
ever: so the number of calls is fixed, not fitted to the time that they take.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import partax
import process_groups
import workloads as work
from interleave import take_turns
from workloads import FLOOR, FORMS, LIBRARIES, PARTAX

DEPTH, WIDTH, ROWS = 16, 32, 64
COLLECTIVES = r" (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter|collective-broadcast)(?:-start)?\("


def layout(strategy: str, mesh: Mesh, tree: Any) -> tuple[Any, NamedSharding]:
    """The shardings of the arrays by prefix, and that of the batch."""
    if strategy == "data":
        return NamedSharding(mesh, P()), NamedSharding(mesh, P(("data", "model")))

    def of(path: Any, leaf: Any) -> NamedSharding | None:
        found = re.search(r"layers\[(\d+)\]\.(\w+)", jax.tree_util.keystr(path))
        if found is None or not partax.is_array(leaf):
            return NamedSharding(mesh, P()) if partax.is_array(leaf) else None
        # Layers are split by their outputs and by their inputs in turn: one sum for each pair, and no gather.
        spec = ("model", None) if int(found[1]) % 2 == 0 else (None, "model")
        return NamedSharding(mesh, P(*spec[: leaf.ndim]))

    return jax.tree_util.tree_map_with_path(of, tree), NamedSharding(mesh, P("data"))


def start(strategy: str) -> tuple[Any, Any, Any]:
    """Model, Adam state and batch, on all devices there are."""
    devices = jax.devices()
    model = work.mlp(depth=DEPTH, width=WIDTH)
    state = work.adam_state(optax.adam(1e-3), model)
    batch = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
    if len(devices) == 1:
        return model, state, jax.device_put(batch)
    grid = np.array(devices).reshape(-1, 2)
    mesh = Mesh(grid, ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    of_state, of_batch = layout(strategy, mesh, (model, state))
    return *partax.filter_shard((model, state), of_state), partax.filter_shard(batch, of_batch)


def local_values(array: jax.Array) -> np.ndarray:
    """What this process has of an array, and NaN elsewhere."""
    value = np.full(array.shape, np.nan, np.float64)
    for shard in array.addressable_shards:
        value[shard.index] = shard.data
    return value


def train(form: str, fn: Callable[..., Any], state: Any, batch: Any, steps: int) -> tuple[Any, list[float]]:
    """The state after some steps, each of which has ended before the next begins; the seconds of each dispatch."""
    dispatch: list[float] = []
    for _ in range(steps):
        begin = time.perf_counter()
        state = fn(state, batch) if form == FLOOR else fn(*state, batch)
        dispatch.append(time.perf_counter() - begin)
        (state[-1] if form == FLOOR else work.last_weight(state[0])).block_until_ready()
    return state, dispatch


def main() -> None:
    rank, count, port = map(int, sys.argv[1:4])
    here, strategy = Path(sys.argv[5]), sys.argv[6]
    compared_steps, rounds, calls = map(int, sys.argv[7:])
    process_groups.join(rank, count, port, float(sys.argv[4]))
    traces: Counter[str] = Counter()
    optimizer = optax.adam(1e-3)

    def make(form: str) -> Callable[..., Any]:
        step = work.train_step(LIBRARIES[form], optimizer)

        def counted(*args: Any) -> Any:
            traces[form] += 1
            return step(*args)

        return counted

    *begin, batch = start(strategy)
    forms = work.four_forms(make, *begin)
    states = {form: forms[form].state[0] if form == FLOOR else forms[form].state for form in FORMS}
    dispatch: dict[str, list[float]] = {form: [] for form in FORMS}
    trained = {form: train(form, forms[form].fn, states[form], batch, compared_steps)[0] for form in FORMS}
    for form in FORMS:
        np.savez(here / f"{form}{rank}.npz", *map(local_values, work.arrays_of(trained[form])))

    def sample(form: str) -> Callable[[], float]:
        def measure() -> float:
            train(form, forms[form].fn, states[form], batch, 1)  # Untimed: back into the caches.
            begun = time.perf_counter()
            dispatch[form] += train(form, forms[form].fn, states[form], batch, calls)[1]
            return (time.perf_counter() - begun) / calls

        return measure

    steps = take_turns({form: sample(form) for form in FORMS}, rounds)
    text = forms[PARTAX].fn.lower(*begin, batch).compile().as_text()
    seen = {
        "steps": {form: steps[form].samples for form in FORMS},
        "dispatch": dispatch,
        "traces": traces,
        "arrays": len(work.arrays_of(begin)),
        "collectives": Counter(re.findall(COLLECTIVES, text)),
    }
    (here / f"{rank}.json").write_text(json.dumps(seen))


main()
