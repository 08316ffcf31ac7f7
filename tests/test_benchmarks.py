"""Guards the promise that benchmarks measure what they say, that stories run, and that the site shows no figure that
the results in the repository do not hold; each result names its machine."""

import importlib
import json
import platform
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"
RESULTS = BENCH / "results"
sys.path += [str(BENCH), str(BENCH.parent / "docs")]
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not all(map(find_spec, ("equinox", "optax", "rich", "sklearn", "tqdm"))), reason="needs `demo`"),
]


def drawing(*names: str) -> list[Any]:
    """Modules of docs/ that draw what is measured."""
    pytest.importorskip("matplotlib")
    return [importlib.import_module(name) for name in names]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=BENCH, capture_output=True, text=True, timeout=600)


def test_a_row_of_families_is_measured_and_written(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    done = run("families.py", "--quick", "--rows", "NamedTuple, in", "--json", str(file))
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())["rows"]
    assert (row["work"], row["unit"], {*row["seconds"]}) == (
        "NamedTuple, in",
        "x floor",
        {"floor", "jax.jit", "partax"},
    )
    assert row["measured"] == row["seconds"]["partax"] / row["seconds"]["floor"]


TOLD = {
    "slow_first_call": [
        "as its user wrote it",
        "repeat at slow_first_call.py",
        "retrace at slow_first_call.py",
        "nothing found",
        "at full size (54203 x 8563)",
    ],
    "recreated_callables": ["closure cell 'slope' 0.1 -> 0.2", "3 traces in 3 calls", "1 traces in 3 calls"],
    "from_python_to_jit": ["sigma: weak float32 -> static float 0.1", "python_walk (", "selu ("],
}


@pytest.mark.parametrize("story", sorted(path.stem for path in (BENCH / "stories").glob("*.py")))
def test_a_story_of_the_guide_prints_the_reports_that_it_is_about(story: str) -> None:
    done = run(f"stories/{story}.py", "--quick")
    assert done.returncode == 0 and [text for text in TOLD[story] if text not in done.stdout + done.stderr] == []


def test_figures_and_tables_are_what_the_results_of_the_repository_give() -> None:
    (plots,) = drawing("plots")
    assert plots.main(["--check"]) == 0


def test_every_benchmark_that_is_recorded_is_read_and_the_other_way_round() -> None:
    record, results = drawing("record", "plot_results")
    assert set(record.COMMANDS) == {*results.BENCHMARKS, *results.SWEEPS}
    assert {file.stem for file in RESULTS.iterdir()} == set(record.COMMANDS)


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_results_name_commit_versions_and_machine_and_nothing_of_the_host(file: Path) -> None:
    found = json.loads(file.read_text(encoding="utf-8"))
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"]) and isinstance(found["changed"], bool)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
    assert found["versions"].keys() >= {"python", "partax", "jax", "jaxlib"}
    assert all(re.fullmatch(r"\d+\.\d+[\w.+]*", version) for version in found["versions"].values())
    assert found["machine"].keys() == {"system", "cpu", "cores"}
    assert found["machine"]["cores"] > 0 and found["machine"]["cpu"] and isinstance(found["quick"], bool)
    head = json.dumps({key: value for key, value in found.items() if key not in ("rows", "points")})
    assert "/" not in head
    assert len(platform.node()) < 4 or platform.node() not in head
