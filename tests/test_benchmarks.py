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

import pytest

BENCH = Path(__file__).parents[1] / "bench"
RESULTS = BENCH / "results"
sys.path += [str(BENCH), str(BENCH.parent / "docs")]
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not all(map(find_spec, ("equinox", "optax", "rich", "sklearn", "tqdm"))), reason="needs `demo`"),
]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=BENCH, capture_output=True, text=True, timeout=600)


def test_a_row_of_families_is_measured_and_written(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    done = run("families.py", "--quick", "--rows", "NamedTuple, in", "--json", str(file))
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())["rows"]
    assert (row["work"], {*row["seconds"]}) == ("NamedTuple, in", {"floor", "jax.jit", "partax"})
    assert row["measured"] == row["seconds"]["partax"] / row["seconds"]["floor"]


OUTPUT = {
    "slow_first_call": ["repeat at slow_first_call.py", "retrace at slow_first_call.py", "nothing found"],
    "recreated_callables": ["which changed from 0.1 to 0.2", "3 traces in 3 calls", "1 traces in 3 calls"],
    "from_python_to_jit": ["sigma: weak float32 -> static float 0.1", "python_walk (", "selu ("],
}


@pytest.mark.parametrize("story", sorted(path.stem for path in (BENCH / "stories").glob("*.py")))
def test_a_story_of_the_guide_prints_the_reports_that_it_is_about(story: str) -> None:
    done = run(f"stories/{story}.py", "--quick")
    assert done.returncode == 0 and [text for text in OUTPUT[story] if text not in done.stdout + done.stderr] == []


def test_figures_and_tables_are_those_of_the_results_and_every_result_is_read() -> None:
    pytest.importorskip("matplotlib")
    plots, record, results = (importlib.import_module(name) for name in ("plots", "record", "plot_results"))
    assert plots.main(["--check"]) == 0
    assert set(record.COMMANDS) == {*results.BENCHMARKS, *results.SWEEPS} == {file.stem for file in RESULTS.iterdir()}


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_results_name_commit_versions_and_machine_and_nothing_of_the_host(file: Path) -> None:
    result = json.loads(file.read_text(encoding="utf-8"))
    assert re.fullmatch(r"[0-9a-f]{40}", result["commit"]) and re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"])
    assert result["versions"].keys() >= {"python", "partax", "jax", "jaxlib"}
    assert result["machine"].keys() == {"system", "cpu", "cores"}
    head = json.dumps({key: value for key, value in result.items() if key not in ("rows", "points")})
    assert "/" not in head and (len(platform.node()) < 4 or platform.node() not in head)
