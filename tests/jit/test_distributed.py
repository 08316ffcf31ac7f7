"""Two processes with four devices each train as one device does; one that is killed ends the other with an error."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partax
import sharded_training as training
from partax import filter_jit

sys.path.append(str(Path(__file__).parents[2] / "bench"))
import processes

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes are ended as groups, which POSIX has"),
    pytest.mark.nightly,  # each process compiles all that it trains
]

pytest.importorskip("safetensors")  # for the files that both write
WORKER = Path(__file__).parents[1].joinpath("distributed_worker.py")
VICTIM = 1


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What both processes have written, where, and how they have ended."""
    here = tmp_path_factory.mktemp("distributed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(partax.__file__).parents[1]))
        ended = processes.run_processes(WORKER, [str(here), str(VICTIM)], count=2, devices=4, timeout=300)
    files = [here / f"{rank}.json" for rank in range(2)]
    assert all(file.exists() for file in files), "\n".join(one.output for one in ended)
    return [json.loads(file.read_text()) for file in files], here, ended


@pytest.fixture(scope="module")
def seen(job: Any) -> list[dict[str, Any]]:
    return job[0]


@pytest.fixture(scope="module")
def on_one_device() -> Any:
    return training.train(filter_jit(training.step), training.start(), training.data(), training.STEPS + 1)


@pytest.mark.parametrize("strategy", ["data", "model"])
def test_training_gives_the_parameters_of_one_device(job: Any, on_one_device: Any, strategy: str) -> None:
    seen, here, _ = job
    want = training.local_values(on_one_device[:2])
    complete = [np.zeros(one.shape, bool) for one in want]
    for rank in range(2):
        with np.load(here / f"{strategy}{rank}.npz") as file:
            found = list(file.values())
        assert len(found) == len(want)
        for value, wanted, whole in zip(found, want, complete, strict=True):
            here_too = ~np.isnan(value) if value.dtype == np.float32 else value >= 0
            np.testing.assert_allclose(value[here_too], wanted[here_too], rtol=0, atol=training.TOLERANCE)
            whole |= here_too
        assert seen[rank][strategy]["value"] == pytest.approx(on_one_device[2], abs=training.TOLERANCE)
    assert all(whole.all() for whole in complete)


@pytest.mark.parametrize("strategy", ["data", "model"])
def test_training_traces_once_and_gathers_nothing(seen: list[dict[str, Any]], strategy: str) -> None:
    for process in seen:
        assert process["devices"] == [8, 4]
        found = process[strategy]
        assert found["traces"] == 1 and found["executables of a later step"] == 0
        assert set(found["collectives"]) == ({"all-reduce"} if strategy == "model" else set())
        assert found["same shards"] and found["donated"] and found["fast path"]
        assert not any(found["fully addressable"])
        assert found["shards"] == [[16, 16] if strategy == "data" else [16, 8]] * 4


def test_trees_of_arrays_that_are_elsewhere_too(seen: list[dict[str, Any]]) -> None:
    for process in seen:
        trees = process["trees"]
        assert trees["sum"] == 240 and trees["leaves"] == 3 and trees["traces"] == 1
        assert trees["forwarded NumPy array"]
        assert trees["forwarded"] and trees["combined"] and trees["flat"] and trees["loaded"]
        (line,) = trees["explained"]
        assert "f: compiled again for trace 1, because tree['x']: committed to" in line


def test_what_cannot_be_done_with_them_is_an_error(seen: list[dict[str, Any]]) -> None:
    for process in seen:
        trees = process["trees"]
        assert trees["save"].startswith("ValueError: `['a']['x']`: found a float32[16] on devices of several processes")
        assert not trees["saved"] and trees["save replicated"] == "no error"
        assert trees["local array"].startswith("ValueError: `tree['a'][0]`: found float32[16], expected")
        assert trees["to one device"].startswith("ValueError: `tree['a']`: found float32[16], expected")
        assert trees["closure"].startswith("RuntimeError: Closing over")
        assert trees["static"].startswith("TypeError: `value`: found an array")


def test_a_killed_process_ends_the_others_with_an_error(job: Any) -> None:
    _, _, ended = job
    assert ended[VICTIM].returncode == -signal.SIGKILL and not ended[VICTIM].killed
    survivor = ended[1 - VICTIM]
    assert not survivor.killed and survivor.returncode not in (0, -signal.SIGKILL)
    assert survivor.seconds < processes.GRACE_SECONDS
    # What comes first is a matter of luck: jax's own word, a collective's exception, or the end that Gloo makes of a
    # process when, after one device's exception, another gets a message of a collective that it is not at.
    told = r"another task died|[Cc]onnection (closed|reset)|terminate called after throwing an instance of 'gloo::"
    assert re.search(told, survivor.output), survivor.output
