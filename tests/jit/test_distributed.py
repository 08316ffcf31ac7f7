"""Two processes with four devices each train as one device does; one that is killed ends the other with an error."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

import partax

sys.path.append(str(Path(__file__).parents[2] / "bench"))
import process_groups

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes are ended as groups, which POSIX has"),
    pytest.mark.nightly,  # each process compiles all that it trains
]

pytest.importorskip("safetensors")  # for the files that both write
WORKER = Path(__file__).parents[1].joinpath("distributed_worker.py")
VICTIM = 1


def test_both_train_as_one_and_where_one_is_killed_the_other_ends_with_an_error(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(partax.__file__).parents[1]))
        ended = process_groups.run_processes(WORKER, [str(tmp_path), str(VICTIM)], count=2, devices=4, timeout=300)
    assert all((tmp_path / f"{rank}.done").exists() for rank in range(2)), "\n".join(one.output for one in ended)
    assert ended[VICTIM].returncode == -signal.SIGKILL and not ended[VICTIM].killed
    survivor = ended[1 - VICTIM]
    assert not survivor.killed and survivor.returncode not in (0, -signal.SIGKILL)
    assert survivor.seconds < process_groups.GRACE_SECONDS
    # What comes first is a matter of luck: jax's own word, a collective's exception, or the end that Gloo makes of a
    # process when, after one device's exception, another gets a message of a collective that it is not at.
    told = r"another task died|[Cc]onnection (closed|reset)|terminate called after throwing an instance of 'gloo::"
    assert re.search(told, survivor.output), survivor.output
