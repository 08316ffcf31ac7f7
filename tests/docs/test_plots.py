"""Guards the promise that the site shows no figure that the results in the repository do not hold, and that each file
of these names its commit, versions and machine."""

from __future__ import annotations

import importlib
import json
import platform
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
sys.path += [str(ROOT / "docs"), str(ROOT / "bench")]
pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")
pytestmark = pytest.mark.nightly
plots, plot_results, record = map(importlib.import_module, ("plots", "plot_results", "record"))


def test_figures_and_tables_are_what_the_results_of_the_repository_give() -> None:
    assert plots.main(["--check"]) == 0


def test_every_benchmark_that_is_recorded_is_read_and_the_other_way_round() -> None:
    assert set(record.COMMANDS) == {*plot_results.BENCHMARKS, *plot_results.SWEEPS}
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
