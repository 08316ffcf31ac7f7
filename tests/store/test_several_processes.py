"""Guards the promise that the processes of `jax.distributed` load a program of all of them, or all trace it."""

import json
import os
import sys
from pathlib import Path

import pytest

import partax

sys.path.append(str(Path(__file__).parents[2] / "bench"))
import process_groups

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes are ended as groups, which POSIX has"),
    pytest.mark.slow,
]

SCRIPT = """
import json, os, signal, sys, time
from pathlib import Path
import process_groups
rank, count, port = map(int, sys.argv[1:4])
victim, factor = json.loads(sys.argv[5])
process_groups.join(rank, count, port, float(sys.argv[4]))
import jax, jax.numpy as jnp, numpy as np, partax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

partax.store(Path(__file__).with_name(f"programs{rank}"))
FACTOR = factor if rank == 0 else 2
rows = NamedSharding(Mesh(jax.devices(), "d"), PartitionSpec("d"))
x = jax.make_array_from_callback((8,), rows, lambda index: np.arange(8, dtype=np.float32)[index])

@partax.filter_jit
def local(x):
    return x + 1

@partax.filter_jit
def step(x, name):
    return {name: x * FACTOR, "sum": x.sum()}

local(jnp.ones(3))
if rank == victim:
    while not [*Path(__file__).with_name(f"programs{rank}").glob("*.partax")]:
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
result = [step(x, "x") for _ in range(3)][-1]
counts = [[f.cache_info().traces, f.cache_info().loads] for f in (local, step)]
print("\\n" + json.dumps([*counts, float(result["sum"].addressable_data(0))]))
"""


def run(folder: Path, count: int, victim: int = -1, factor: int = 2) -> list[tuple[list[int], list[int]] | None]:
    """Of each process: the traces and loads of its own program, and of that of all processes; None if it has failed."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "PYTHONPATH", f"{Path(partax.__file__).parents[1]}{os.pathsep}{Path(__file__).parents[2] / 'bench'}"
        )
        ended = process_groups.run_processes(script, [json.dumps([victim, factor])], count, devices=1, timeout=240)
    outcomes: list[tuple[list[int], list[int]] | None] = []
    for process in ended:
        assert not process.killed, process.output
        if process.returncode != 0:
            outcomes.append(None)
            continue
        line = next(line for line in process.output.splitlines() if line.startswith("[["))
        local, step, total = json.loads(line)
        assert total == 28
        outcomes.append((local, step))
    assert victim >= 0 or None not in outcomes, "\n".join(process.output for process in ended)
    return outcomes


TRACED, LOADED = [1, 0], [0, 1]


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_a_program_of_all_processes_is_loaded_by_all(count: int, tmp_path: Path) -> None:
    assert run(tmp_path, count) == [(TRACED, TRACED)] * count
    assert run(tmp_path, count) == [(LOADED, LOADED)] * count


def test_all_trace_if_one_process_cannot_load(tmp_path: Path) -> None:
    run(tmp_path, 2)
    assert run(tmp_path, 2, factor=3) == [(LOADED, TRACED)] * 2  # one has other code
    for file in (tmp_path / "programs1").glob("*.partax"):
        file.unlink()
    assert run(tmp_path, 2) == [(LOADED, TRACED), (TRACED, TRACED)]
    assert run(tmp_path, 2) == [(LOADED, LOADED)] * 2


def test_a_process_that_is_killed_leaves_programs_for_the_next_run(tmp_path: Path) -> None:
    killed, other = run(tmp_path, 2, victim=1)
    assert killed is None and other is None
    assert run(tmp_path, 2) == [(LOADED, TRACED)] * 2
    assert run(tmp_path, 2) == [(LOADED, LOADED)] * 2
