"""Runs the suites of Equinox and of libraries built on it on partax, that of Flax with `partax.nnx.jit`, and jax's own
tests of `jax.jit` with `partax.jit`.

    python -m pip install -r tests/clients/requirements.txt
    python tests/clients/run.py [--only NAME] [--files TEXT] [--way NAME] [--jobs N] [--seconds S] [--into DIR]

Libraries on Equinox run in two ways: with `accelerate()`, and with `partax.equinox` instead of Equinox. The suites are
fetched in the installed versions, without libraries that are not installed. Each file runs in its own process: with
partax; if a test failed, again without; and the tests that pass only there once more with partax, as some measure
speed. The exit status is 1 if a test passes only without partax, except those of deliberate differences.
"""

import argparse
import concurrent.futures
import importlib.metadata
import importlib.util
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
    """The tests of a library, and the ways in which they run on partax."""

    owner: str
    tests: str
    files: str = "test_*.py"
    ways: tuple[str, ...] = ("accelerated", "replaced")
    differs: tuple[str, ...] = ()  # tests of deliberate differences
    tag: str = "v"  # before the version


# Tests of jax that differ with `partax.jit`, by the reason.
OF_JAX = {
    "errors have partax's type or text, and the path": """
        JitTest::test_cpp_jit_raises_on_non_hashable_static_argnum JitTest::test_jit_bad_input APITest::test_bad_input
        JitTest::test_cpp_jit_raises_other_exceptions_when_hashing_fails JitTest::test_jit_enum_as_dict_keys_fails
        JitTest::test_jit_raises_on_first_invocation_on_non_hashable_static_argnum ArrayPjitTest::test_check_arg_error
        APITest::test_returned_non_jaxtype PJitErrorTest::testOutShardingsMismatchShowsAllDetails
        ArrayPjitTest::test_shape_dtype_struct_as_const_error""",
    "private attributes, texts, frames and logs of jax's own wrapper": """
        JitTest::test_fun_name TracebackTest::test_jit_traceback JitTest::test_jit_repr JitTest::test_jit_repr_errors
        APITest::test_cache_miss_explanations_new_function_in_loop ArrayPjitTest::test_jit_cpp_cache_obj_config
        APITest::test_cache_miss_explanations_other_in_tree""",
    "`f(x, 2)` is `f(x, n=2)`, and an equal re-created function has the same program": """
        JitTest::test_jit_kwargs0 JitTest::test_jit_kwargs1 JitTest::test_jit_with_mismatched_static_argnames
        JitTest::test_jit_donate_warning_raised_argnums JitTest::test_jit_reference_dropping
        APITest::test_rank_promotion_forces_retrace""",
    "stages trace for themselves": """
        APITest::test_eval_shape_trace_cache_share APITest::test_vjp3_dont_want_bilinear
        ArrayPjitTest::test_lowering_cache_hit_with_closed_over_constants_jit_no_hoist
        ArrayPjitTest::test_lowering_cache_hit_with_closed_over_constants_sharded
        ShardingInTypesTest::test_eval_shape_jitted_fun_cache_hit""",
    "tokens and a ShapeDtypeStruct are not arrays, and a function needs no weak reference": """
        JitTest::test_trivial_computations_with_tokens ArrayPjitTest::test_jit_token_input
        APITest::test_jit_capturing_token APITest::test_eval_shape_nested_jit_sds
        JitTest::test_jit_of_nonweakreferenceable_function""",
}

SUITES = {
    "equinox": Suite(
        "patrick-kidger",
        "tests",
        ways=("accelerated",),  # the tests name its own modules
        # The class of a module that is jitted itself names a generator of keys, which can be changed.
        differs=("test_buffer_donation_instance",),
    ),
    "lineax": Suite("patrick-kidger", "tests"),
    "optimistix": Suite("patrick-kidger", "tests"),
    "diffrax": Suite("patrick-kidger", "test"),
    "flax": Suite(
        "google",
        "tests/nnx",
        "**/*_test.py",
        ("nnx_replaced",),
        # What does not change is not touched.
        ("TestJIT::test_apply_shardings", "TestVmap::test_equivalent_state_sharding_mapping"),
    ),
    "flowjax": Suite("danielward27", "tests", "**/test_*.py"),
    "quax": Suite("nstarman", "tests", "**/test_*.py"),
    "coreax": Suite(
        "gchq",
        "tests/unit",
        "test_[!b]*.py",  # test_benchmark.py needs torch
        # Warnings are errors, and partax warns of a number in the state of a loop, which is a trace in each step.
        differs=(
            "TestSlicedScoreMatching::test_multivariate_gaussian_score",
            "TestSlicedScoreMatching::test_match_no_noise_conditioning",
        ),
    ),
    "gpjax": Suite("QuantClimate", "tests", "**/test_*.py"),
    "jax": Suite(
        "jax-ml", "tests", "api_test.py pjit_test.py", ("jit",), tuple(" ".join(OF_JAX.values()).split()), "jax-v"
    ),
}


@dataclass
class Outcome:
    """The outcome of each test of a file by name, and the output."""

    tests: dict[str, str] = field(default_factory=dict)
    output: str = ""
    ended: bool = True

    def failed(self) -> set[str]:
        return {name for name, outcome in self.tests.items() if outcome in ("failure", "error")}


def fetch(name: str, directory: Path) -> Path:
    """A checkout of the tests of the installed version, without the library, which would be imported there."""
    checkout = directory / name
    if not checkout.exists():
        tag = f"{SUITES[name].tag}{importlib.metadata.version(name)}"
        clone = ["git", "clone", "--quiet", "--no-checkout", "--depth", "1", "--branch", tag]
        subprocess.run([*clone, f"https://github.com/{SUITES[name].owner}/{name}", checkout], check=True)
        subprocess.run(
            ["git", "checkout", "--quiet", tag, "--", SUITES[name].tests, "pyproject.toml"], check=True, cwd=checkout
        )
    return checkout


def run_file(checkout: Path, file: Path, way: str, seconds: float, tests: Sequence[str] = ()) -> Outcome:
    """Runs a test file, or some tests of it by name, in one of the ways, or without partax if that is empty."""
    here, path = str(Path(__file__).parent), str(file.relative_to(checkout))
    environment = {"JAX_PLATFORMS": "cpu", "PARTAX_WAY": way}
    environment["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
        command += [*(["-p", "on_partax"] if way else []), f"--junitxml={report}"]
        command += [f"{path}::{name}" for name in tests] or [path]
        try:
            done = subprocess.run(
                command,
                cwd=checkout,
                env=os.environ | environment,
                capture_output=True,
                text=True,
                timeout=seconds,
            )
            return Outcome(outcomes(report, file.stem), done.stdout, done.returncode in (0, 1, 5))
        except subprocess.TimeoutExpired as error:
            return Outcome(outcomes(report, file.stem), str(error.stdout or ""), False)


def outcomes(report: Path, module: str) -> dict[str, str]:
    """By the name of each test as pytest takes it: `passed`, `failure`, `error` or `skipped`."""
    by_name: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        classes = str(case.get("classname")).rpartition(module)[2].strip(".")
        name = "::".join([*filter(None, classes.split(".")), str(case.get("name"))])
        by_name[name] = next((child.tag for child in case if child.tag in ENDS), "passed")
    return by_name


def compare(
    checkout: Path, file: Path, suite: Suite, way: str, seconds: float
) -> tuple[Path, str, Outcome, Outcome | None, set[str]]:
    """The outcome with partax, the outcome without if something failed, and the tests that pass only without."""
    ours = run_file(checkout, file, way, seconds)
    if ours.ended and not ours.failed():
        return file, way, ours, None, set()
    theirs = run_file(checkout, file, "", seconds)
    passed = {name for name, outcome in theirs.tests.items() if outcome == "passed"}
    if not ours.ended:
        return file, way, ours, theirs, {name for name in passed if ours.tests.get(name) != "passed"}
    lost = passed & ours.failed() - {*suite.differs}
    if lost:
        lost &= run_file(checkout, file, way, seconds, sorted(lost)).failed()
    return file, way, ours, theirs, lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", choices=SUITES, action="append", help="this suite; may be repeated")
    parser.add_argument("--files", metavar="TEXT", default="", help="only test files whose names hold it")
    parser.add_argument("--way", metavar="NAME", default="", help="only in this way")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="files at a time")
    parser.add_argument("--seconds", metavar="S", type=float, default=2400, help="for each file")
    parser.add_argument("--into", metavar="DIR", type=Path, help="where checkouts are kept; by default none is")
    options = parser.parse_args()

    lost: list[str] = []
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = []
        for name in options.only or filter(importlib.util.find_spec, SUITES):
            checkout = fetch(name, options.into or Path(temporary))
            suite = SUITES[name]
            files = sorted(file for pattern in suite.files.split() for file in (checkout / suite.tests).glob(pattern))
            files = [file for file in files if options.files in file.name]
            ways = [way for way in suite.ways if options.way in ("", way)]
            tasks = [(checkout, file, suite, way, options.seconds) for way in ways for file in files]
            running += [pool.submit(compare, *task) for task in tasks]
        if not running:
            sys.exit(f"no test file holds {options.files!r}")
        for done in concurrent.futures.as_completed(running):
            file, way, ours, theirs, only_without = done.result()
            where = f"{file.parent.parent.name}/{file.name} {way}"
            passed = sum(outcome == "passed" for outcome in ours.tests.values())
            line = f"{where:55} {passed:5} passed, {len(ours.failed()):3} failed"
            if theirs is not None:
                line += f" ({len(theirs.failed())} without), {len(only_without)} by partax"
            print(line + ("" if ours.ended else ", did not end"), flush=True)
            if only_without:
                print(ours.output[-20000:], *sorted(only_without), sep="\n", flush=True)
            lost += [f"{where} {name}" for name in only_without]
    print(f"{len(lost)} tests pass only without partax", *sorted(lost), sep="\n")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
