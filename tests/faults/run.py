"""Lets every allocation of the native module fail once, in each operation, and prints the outcomes.

``python tests/faults/run.py`` tests the partax that this Python imports. ``--quick`` leaves out slow operations and
passes, ``--only TEXT`` selects the operations with this in their names, and ``--list`` prints the names. The exit
status is 1 if a failure led to anything but a clean MemoryError or the right result.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Row = tuple[str, list[str], int]  # an operation, the kinds of its faults, and the number of failed allocations


def compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")


def compile_injector(directory: Path) -> Path:
    target = directory / "injector.so"
    flags = ["-std=c++17", "-O1", "-g", "-fPIC", "-shared", "-fno-optimize-sibling-calls", "-Wall", "-Wextra"]
    files = [str(HERE / "injector.cpp"), "-o", str(target), f"-I{sysconfig.get_paths()['include']}", "-ldl"]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([compiler() or "c++", *flags, *files], check=True, env=environment)
    return target


def run_module(injector: Path, module: str, **options: Any) -> list[Row]:
    """Runs the operations of a module in a worker. After a crash, another one continues with the next operation."""
    rows: list[Row] = []
    while True:
        with tempfile.TemporaryDirectory() as directory:
            results, progress = Path(directory, "results"), Path(directory, "progress")
            results.touch()
            progress.touch()
            # The runtime of a sanitizer, if there is one, comes after the injector.
            environment = os.environ | {
                "JAX_PLATFORMS": "cpu",
                "LD_PRELOAD": f"{injector} {os.environ.get('LD_PRELOAD', '')}".strip(),
                "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0".strip(":"),
                "PYTHONPATH": os.pathsep.join(
                    [str(HERE.parent), str(injector.parent), os.environ.get("PYTHONPATH", "")]
                ).rstrip(os.pathsep),
            }
            arguments = [str(results), str(progress), module, str(len(rows)), json.dumps(options)]
            worker = subprocess.run([sys.executable, str(HERE / "worker.py"), *arguments], env=environment)
            rows += [json.loads(line) for line in results.read_text().splitlines()]
            place = progress.read_text().strip("\0 \n")
        if worker.returncode == 0:
            return rows
        if not place:
            sys.exit(f"the worker for {module} ended with {worker.returncode}")
        print(f"{place}: crash, exit status {worker.returncode}", flush=True)
        rows.append((place.partition(":")[0], ["crash"], 0))


def check_harness(injector: Path) -> int:
    """Runs the harness on one bug of each kind, and returns the number of bugs that it does not report."""
    print("The harness itself, on deliberate bugs:", flush=True)
    rows = run_module(injector, "deliberate", only="", quick=False, list=False)
    missed = [name for name, kinds, _ in rows if not any(kind.startswith(name) for kind in kinds or ["no fault"])]
    print(f"{len(rows) - len(missed)} of {len(rows)} deliberate bugs reported; missed: {missed}\n")
    return len(missed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--no-self-check", action="store_true")
    options = vars(parser.parse_args())
    if not sys.platform.startswith("linux") or compiler() is None:
        print("needs Linux and a C++ compiler", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        injector = compile_injector(Path(directory))
        missed = 0 if options.pop("no_self_check") or options["list"] else check_harness(injector)
        if not options["list"]:
            print(f"{'operation':62} {'allocations':>11} {'MemoryError':>11} {'absorbed':>8}  outcome", flush=True)
        modules = [path.stem for path in sorted(HERE.glob("operations_*.py"))]
        rows = [row for module in modules for row in run_module(injector, module, **options)]
    bad = sum(bool(kinds) for _, kinds, _ in rows) + missed
    if not options["list"]:
        print(f"\n{len(rows)} operations, {sum(row[2] for row in rows)} failed allocations, {bad} with faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
