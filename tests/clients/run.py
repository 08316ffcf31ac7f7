"""Runs the suites of Equinox and of libraries that stand on it on partax, and that of Flax with our nnx.jit.

    python -m pip install -r tests/clients/requirements.txt
    python tests/clients/run.py [--only NAME] [--files TEXT] [--way NAME] [--jobs N] [--seconds S] [--into DIR]

There are two ways: with `accelerate()`, and with `partax.equinox` in the place of Equinox. The suites are fetched, in
the versions of requirements.txt, and each of their files runs in a process of its own: first with partax, then, where a
test failed, that file once more without, and the tests that pass only there once more with: some measure speed. It ends
with 1 if a test fails that passes without, except those of what differs on purpose.
"""

import argparse
import concurrent.futures
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ENDS = ("failure", "error", "skipped")


@dataclass(frozen=True)
class Suite:
    """Where the tests of a library are, and the pytest plugins by which they run on partax, one for each way."""

    owner: str
    tests: str
    files: str = "test_*.py"
    plugins: tuple[str, ...] = ("accelerated", "replaced")
    differs: tuple[str, ...] = ()  # tests of what differs on purpose


_STAYS_WHERE_IT_IS = ("TestJIT::test_apply_shardings", "TestVmap::test_equivalent_state_sharding_mapping")
_FLAX = Suite(
    "google",
    "tests/nnx",
    "**/*_test.py",
    ("nnx_replaced",),
    # What does not change is not touched, and hijax Variables are refused.
    (*_STAYS_WHERE_IT_IS, "HijaxTransformCoverageTest::test_hijax_variable_in_jit_graph_updates_false"),
)
_EQUINOX = Suite(
    "patrick-kidger",
    "tests",
    plugins=("accelerated",),  # its tests are of what is in its own modules
    # The class of a module that is jitted itself names a generator of keys, which can be changed.
    differs=("test_buffer_donation_instance",),
)
_SCORES = (
    "TestSlicedScoreMatching::test_multivariate_gaussian_score",
    "TestSlicedScoreMatching::test_match_no_noise_conditioning",
)
SUITES = {
    "equinox": _EQUINOX,
    "lineax": Suite("patrick-kidger", "tests"),
    "optimistix": Suite("patrick-kidger", "tests"),
    "diffrax": Suite("patrick-kidger", "test"),
    "flax": _FLAX,
    "flowjax": Suite("danielward27", "tests", "**/test_*.py"),
    "quax": Suite("nstarman", "tests", "**/test_*.py"),
    # Its warnings are errors, and a number in the state of its loops is a trace at each step, of which ours warns.
    "coreax": Suite("gchq", "tests/unit", "test_[!b]*.py", differs=_SCORES),  # test_benchmark.py needs torch
    "gpjax": Suite("QuantClimate", "tests", "**/test_*.py"),
}


@dataclass
class Outcome:
    """What came of one test file: the outcome of each test by name, and what was printed."""

    tests: dict[str, str] = field(default_factory=dict)
    output: str = ""
    ended: bool = True

    def failed(self) -> set[str]:
        return {name for name, outcome in self.tests.items() if outcome in ("failure", "error")}


def fetch(name: str, directory: Path) -> Path:
    """A checkout of the suite, of the version that is installed; without the library, which would be imported there."""
    checkout = directory / name
    if not checkout.exists():
        tag = f"v{importlib.metadata.version(name)}"
        clone = ["git", "clone", "--quiet", "--no-checkout", "--depth", "1", "--branch", tag]
        subprocess.run([*clone, f"https://github.com/{SUITES[name].owner}/{name}", checkout], check=True)
        subprocess.run(
            ["git", "checkout", "--quiet", tag, "--", SUITES[name].tests, "pyproject.toml"], check=True, cwd=checkout
        )
    return checkout


def pytest(checkout: Path, *arguments: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = dict(os.environ, JAX_PLATFORMS="cpu", PYTHONPATH=path)
    return subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, timeout=seconds)


def run_file(checkout: Path, file: Path, plugin: str, seconds: float, tests: Sequence[str] = ()) -> Outcome:
    """Runs a test file, or some tests of it by name, with a plugin or none."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        by = ["-p", plugin] if plugin else []
        path = str(file.relative_to(checkout))
        which = [f"{path}::{name}" for name in tests] or [path]
        try:
            done = pytest(checkout, f"--junitxml={report}", *by, "--tb=short", *which, seconds=seconds)
            output, ended = done.stdout, done.returncode in (0, 1, 5)
        except subprocess.TimeoutExpired as error:
            output, ended = str(error.stdout or ""), False
        return Outcome(outcomes(report, file.stem), output, ended)


def outcomes(report: Path, module: str) -> dict[str, str]:
    """The outcome of each test of a module: `passed`, `failure`, `error` or `skipped`."""
    if not report.exists():
        return {}
    cases = ElementTree.parse(report).iter("testcase")
    return {name_of(case, module): next((child.tag for child in case if child.tag in ENDS), "passed") for case in cases}


def name_of(case: ElementTree.Element, module: str) -> str:
    """As pytest takes it: `TestClass::test_name[parameter]`."""
    classes = str(case.get("classname")).rpartition(module)[2].strip(".")
    return "::".join([*filter(None, classes.split(".")), str(case.get("name"))])


def compared(
    checkout: Path, file: Path, suite: Suite, plugin: str, seconds: float
) -> tuple[Path, str, Outcome, Outcome | None, set[str]]:
    """The outcome with partax; that without, where something failed with it; and what passes only without."""
    ours = run_file(checkout, file, plugin, seconds)
    if ours.ended and not ours.failed():
        return file, plugin, ours, None, set()
    theirs = run_file(checkout, file, "", seconds)
    passed = {name for name, outcome in theirs.tests.items() if outcome == "passed"}
    if not ours.ended:
        return file, plugin, ours, theirs, {name for name in passed if ours.tests.get(name) != "passed"}
    lost = passed & ours.failed() - {*suite.differs}
    if lost:
        lost &= run_file(checkout, file, plugin, seconds, sorted(lost)).failed()
    return file, plugin, ours, theirs, lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", choices=SUITES, action="append", help="this suite; may be repeated")
    parser.add_argument("--files", metavar="TEXT", default="", help="only test files whose names hold it")
    parser.add_argument("--way", metavar="NAME", default="", help="only by the plugin of this name")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="files at a time")
    parser.add_argument("--seconds", metavar="S", type=float, default=2400, help="for each file")
    parser.add_argument("--into", metavar="DIR", type=Path, help="where checkouts are kept; by default none is")
    options = parser.parse_args()

    lost: list[str] = []
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = []
        for name in options.only or SUITES:
            checkout = fetch(name, options.into or Path(temporary))
            suite = SUITES[name]
            files = sorted((checkout / suite.tests).glob(suite.files))
            files = [file for file in files if options.files in file.name]
            ways = [plugin for plugin in suite.plugins if options.way in ("", plugin)]
            tasks = [(checkout, file, suite, plugin, options.seconds) for plugin in ways for file in files]
            running += [pool.submit(compared, *task) for task in tasks]
        if not running:
            sys.exit(f"no test file holds {options.files!r}")
        for done in concurrent.futures.as_completed(running):
            file, plugin, ours, theirs, found = done.result()
            where = f"{file.parent.parent.name}/{file.name} {plugin}"
            passed = sum(outcome == "passed" for outcome in ours.tests.values())
            line = f"{where:55} {passed:5} passed, {len(ours.failed()):3} failed"
            if theirs is not None:
                line += f" ({len(theirs.failed())} without), {len(found)} by partax"
            print(line + ("" if ours.ended else ", did not end"), flush=True)
            if found:
                print(ours.output[-20000:], *sorted(found), sep="\n", flush=True)
            lost += [f"{where} {name}" for name in found]
    print(f"{len(lost)} tests pass only without partax", *sorted(lost), sep="\n")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
