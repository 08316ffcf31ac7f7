"""Guards the promise that the run of other libraries' suites tells what fails by partax from what fails anyway."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "clients" / "run.py"
SUITE = """
import equinox as eqx
import pytest

def test_that_passes(): pass

class TestOfOurs:
    @pytest.mark.parametrize("n", [1, 2])
    def test_that_passes_only_without(self, n): assert n == 1 or eqx.partition.__module__.startswith("equinox")

def test_that_fails_anyway(): assert False
"""


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("git") is None, reason="the suites are fetched by git")
def test_only_what_fails_by_partax_counts(tmp_path: Path) -> None:
    repository = tmp_path / "equinox"
    (repository / "tests").mkdir(parents=True)
    (repository / "pyproject.toml").write_text("")
    (repository / "tests" / "test_some.py").write_text(SUITE)

    def git(*command: str) -> None:
        who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
        subprocess.run(["git", *who, *command], cwd=repository, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "suite")
    git("tag", f"v{importlib.metadata.version('equinox')}")
    command = [sys.executable, str(RUN), "--only", "equinox", "--from", str(tmp_path / "{name}")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 passed,   2 failed (1 without), 1 by partax" in done.stdout
    assert done.stdout.splitlines()[-2:] == [
        "1 tests pass only without partax",
        "equinox/test_some.py accelerated TestOfOurs::test_that_passes_only_without[2]",
    ]
