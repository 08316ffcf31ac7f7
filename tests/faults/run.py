"""Lets every allocation of the native module fail once, in each operation, and prints what comes of it.

``python tests/faults/run.py`` tests the partax that this Python imports; ``--quick`` leaves out what takes long,
``--only TEXT`` takes the operations whose names hold it, ``--list`` names them. It ends with 1 if anything but a clean
MemoryError or the right result came of a failure.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BATCH = 6
TIMEOUT = 1800


def compiler() -> str | None:
    """The C++ compiler, if there is one."""
    return shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")


def injector(directory: Path) -> Path:
    """Compiles it for this Python."""
    target = directory / "injector.so"
    flags = ["-std=c++17", "-O1", "-g", "-fPIC", "-shared", "-fno-optimize-sibling-calls", "-Wall", "-Wextra"]
    files = [str(HERE / "injector.cpp"), "-o", str(target), f"-I{sysconfig.get_paths()['include']}", "-ldl"]
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([compiler() or "c++", *flags, *files], check=True, env=plain)
    return target


def names_in(path: Path, quick: bool) -> list[str]:
    """The operations of a file, read without importing it."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        called = getattr(node.func, "id", None) if isinstance(node, ast.Call) else None
        if called not in ("operation", "operations") or (quick and any(it.arg == "quick" for it in node.keywords)):
            continue
        if called == "operation":
            names.append(ast.literal_eval(node.args[0]))
        else:
            kind, makers = node.args
            names += [f"{ast.literal_eval(kind)}: {ast.literal_eval(key)}" for key in makers.keys]
    return names


def symbols(core: str, base: int, site: list[int]) -> str:
    """Functions and lines of addresses in the module, if binutils are there and the module has debugging symbols."""
    addr2line, readelf = shutil.which("addr2line"), shutil.which("readelf")
    if addr2line is None or readelf is None:
        return " < ".join(map(hex, site))
    sections = subprocess.run([readelf, "-lW", core], capture_output=True, text=True).stdout
    offset = next((int(x.split()[2], 16) for x in sections.splitlines() if "LOAD" in x and " E " in x), 0)
    command = [addr2line, "-Cfse", core, *(hex(a - base + offset) for a in site)]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return " < ".join(f"{f.split('(')[0][-60:]} {at}" for f, at in zip(lines[::2], lines[1::2], strict=True))


class Faults:
    """Runs workers over batches of operations, each again without the one that it crashed in."""

    def __init__(self, directory: Path, thorough: bool) -> None:
        self.directory = directory
        self.thorough = thorough
        self.injector = injector(directory)
        self.rows: list[dict[str, Any]] = []

    def run(self, module: str, names: list[str]) -> Iterator[dict[str, Any]]:
        waiting = list(names)
        while waiting:
            batch, waiting = waiting[:BATCH], waiting[BATCH:]
            before = len(self.rows)
            waiting = self.run_batch(module, batch) + waiting
            for row in self.rows[before:]:
                if not row["faults"] and (row["points"] > 0) != row["allocates"]:
                    expected = "some" if row["allocates"] else "none"
                    row["faults"] = [{"kind": "allocations", "where": "", "site": [], "times": 1, "detail": expected}]
                yield row

    def run_batch(self, module: str, names: list[str]) -> list[str]:
        results, progress = self.directory / "results", self.directory / "progress"
        for file in (results, progress):
            file.write_text("")
        env = dict(os.environ, JAX_PLATFORMS="cpu")
        # A sanitizer's runtime, if there is one, comes after the injector.
        env["LD_PRELOAD"] = f"{self.injector} {os.environ.get('LD_PRELOAD', '')}".strip()
        env["ASAN_OPTIONS"] = ":".join([*filter(None, [os.environ.get("ASAN_OPTIONS")]), "verify_asan_link_order=0"])
        env["PYTHONPATH"] = os.pathsep.join(
            [str(HERE), str(HERE.parent), str(self.directory), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        ).rstrip(os.pathsep)
        arguments = [str(results), str(progress), module, "1" if self.thorough else "0", *names]
        done = subprocess.run(
            [sys.executable, str(HERE / "worker.py"), *arguments],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        finished = [json.loads(line) for line in results.read_text().splitlines()]
        self.rows += finished
        left = [name for name in names if name not in {row["name"] for row in finished}]
        if done.returncode == 0:
            return []
        where = progress.read_text().strip("\0 \n")
        if not left or not where.startswith(left[0]):
            raise SystemExit(f"the worker ended with {done.returncode}:\n{done.stdout[-4000:]}")
        # AddressSanitizer turns a signal into an exit status.
        kind = f"crash ({-done.returncode})" if done.returncode < 0 else f"crash (exit {done.returncode})"
        fault = {"kind": kind, "where": where, "site": [], "times": 1, "detail": done.stdout[-6000:]}
        row = {"name": left[0], "points": 0, "counts": {}, "faults": [fault], "core": "", "base": 0, "allocates": True}
        self.rows.append(row)
        return left[1:]


HEADER = f"{'operation':46} {'allocations':>11} {'MemoryError':>11} {'absorbed':>8}  outcome"


def print_row(row: dict[str, Any]) -> None:
    counts, faults = row["counts"], row["faults"]
    outcome = "ok" if not faults else f"{len(faults)} faults"
    clean, absorbed = counts.get("clean", 0), counts.get("absorbed", 0)
    print(f"{row['name']:46} {row['points']:11} {clean:11} {absorbed:8}  {outcome}", flush=True)
    for fault in faults:
        print(f"    {fault['kind']}, {fault['times']} times: {fault['where']}: {fault['detail']}")
        if fault["site"]:
            print(f"      at {symbols(row['core'], row['base'], fault['site'])}", flush=True)


def self_check(faults: Faults) -> int:
    """The harness on one bug of each kind: it must see them all."""
    missed = 0
    for row in faults.run("deliberate", names_in(HERE / "deliberate.py", False)):
        wanted = row["name"].removeprefix("deliberate: ")
        found = {fault["kind"] for fault in row["faults"]} or {"no fault"}
        seen = any(kind.startswith(wanted) for kind in found)
        missed += not seen
        told = ", ".join(sorted(found)) + ("" if seen else "  MISSED")
        print(f"{row['name']:46} {row['points']:11}  {told}", flush=True)
    faults.rows.clear()
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--no-self-check", action="store_true")
    options = parser.parse_args()
    modules = sorted(path for path in HERE.glob("operations_*.py"))
    if options.list:
        print(*(name for path in modules for name in names_in(path, options.quick)), sep="\n")
        return 0
    if not sys.platform.startswith("linux") or compiler() is None:
        print("needs Linux and a C++ compiler", file=sys.stderr)
        return 2
    bad = 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        faults = Faults(Path(directory), not options.quick)
        if not options.no_self_check:
            print("The harness itself, on deliberate bugs:")
            bad += self_check(faults)
            print()
        print(HEADER)
        for path in modules:
            names = [name for name in names_in(path, options.quick) if options.only in name]
            for row in faults.run(path.stem, names):
                print_row(row)
                bad += bool(row["faults"])
        points = sum(row["points"] for row in faults.rows)
        runs = sum(sum(row["counts"].values()) for row in faults.rows)
    print(f"\n{len(faults.rows)} operations, {points} allocation points, {runs} failed allocations, {bad} with faults")
    print(f"{time.monotonic() - begin:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
