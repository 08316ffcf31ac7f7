"""Guards the promise that benchmarks and sweeps measure what they say, what is missed once more; that stories run; and
that the site shows no figure that the results in the repository do not hold, each of which names its machine."""

import importlib
import json
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
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
    assert (row["work"], row["unit"], {*row["seconds"]}) == ("NamedTuple, in", "x floor", JITS - {"equinox"})
    assert row["measured"] == row["seconds"]["partax"] / row["seconds"]["floor"]


def measured_as(ratios: Sequence[float], log: Path) -> None:
    """A benchmark of two rows: the first measures the next ratio in each process that measures it, the second 1."""
    budgets, interleave = (importlib.import_module(name) for name in ("budgets", "interleave"))

    def row(effort: Any, name: str, budget: float) -> Any:
        ratio = 1.0
        if name == "a row":
            with log.open("a") as file:
                print(os.getpid(), effort.quick, file=file)
            ratio = ratios[len(log.read_text().splitlines()) - 1]
        seconds = {"floor": interleave.Timing((1.0,)), "partax": interleave.Timing((ratio,))}
        return budgets.as_row(name, seconds, budget, "x floor")

    rows = [("a row", 1.5, row), ("a row beside it", 1.5, row)]
    sys.exit(budgets.run(rows, ("floor", "partax"), (), "Two rows."))


@pytest.mark.parametrize(("ratios", "code"), [((2.0, 1.4), 0), ((2.0, 2.1, 1.5), 0), ((2.0, 2.1, 2.2), 1)])
def test_a_check_measures_what_is_missed_in_two_more_processes(
    ratios: tuple[float, ...], code: int, tmp_path: Path
) -> None:
    script, log, file = tmp_path / "rows.py", tmp_path / "log", tmp_path / "rows.json"
    script.write_text(
        f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}]\n"
        f"from pathlib import Path; from test_benchmarks import measured_as; measured_as({ratios}, Path({str(log)!r}))"
    )
    done = run(str(script), "--check", "--quick", "--rows", "a row", "--json", str(file))
    assert done.returncode == code, done.stdout + done.stderr
    assert [row["measured"] for row in json.loads(file.read_text())["rows"]] == [ratios[-1], 1.0]
    processes = log.read_text().splitlines()
    assert len({*processes}) == len(processes) == len(ratios)
    assert all(line.endswith("True") for line in processes)  # each as quick as the first


# Where each sweep is small, and the forms that it measures there.
JITS = {"floor", "jax.jit", "equinox", "partax"}
NNX = {"floor", "split, merge", "nnx.jit", "tree mode", "cached_partial", "jit_partial", "partax"}
SMALL: dict[str, tuple[int, set[str]]] = {
    "arrays": (10, JITS),
    "nodes": (2, {"dict", "NamedTuple", "equinox.Module", "own class, register_pytree_node"}),
    "work": (8, JITS),
    "leaves": (10, {"partax", "equinox", "inox", "jax.tree", "optree"}),
    "retraces": (2, JITS - {"floor"}),
    "devices": (1, JITS),
    "nnx": (1, NNX),
    "bound": (10, {"floor", "all arguments", "bound"}),
    "steps": (1, {"floor", "partax.scan_steps"}),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_sweep_is_measured_written_and_drawn(name: str, tmp_path: Path) -> None:
    at, forms = SMALL[name]
    for needed in {"nnx": ["flax.nnx"], "leaves": ["inox", "optree"]}.get(name, []):
        pytest.importorskip(needed)
    file = tmp_path / f"sweep_{name}.json"
    done = run("sweeps.py", "--quick", "--only", name, "--at", str(at), "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    measured = json.loads(file.read_text())["points"]
    assert {(point["sweep"], point["at"]) for point in measured} == {(name, at)}
    assert {point["form"] for point in measured} >= forms
    for point in measured:
        assert point["low"] <= point["median"] <= point["high"] < math.inf and point["samples"] > 1
        assert point["quantity"] == "share" or point["low"] > 0
    lines = [(point["panel"], point["form"], point["quantity"]) for point in measured]
    assert len(lines) == len({*lines})

    figures, charts, results = drawing("plot_figures", "plot_charts", "plot_results")
    drawn = figures.FIGURES[name].draw(results.read(tmp_path, file.stem), charts.LIGHT, name)
    assert "<svg" in drawn and figures.FIGURES[name].reading(results.read(tmp_path, file.stem))


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
