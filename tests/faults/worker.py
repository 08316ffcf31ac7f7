"""Runs operations with failing allocations, in a process that has the injector preloaded: see run.py."""

import collections
import faulthandler
import gc
import importlib
import json
import os
import shutil
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import injector
from case import OPERATIONS, Case

MAX_ALLOCATIONS = 20_000
SHARED = 10_000  # as many references have True and small numbers, which others count too
Sites = collections.Counter[tuple[int, ...]]


class Runner:
    """Runs one operation, and counts the outcomes of its runs."""

    def __init__(self, name: str, progress: int) -> None:
        self.name = name
        self.progress = progress
        self.allocations = 0
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.faults: dict[tuple[str, str], str] = {}  # by kind and site
        self.unraisable: list[str] = []
        self.python_keeps_memory = False
        sys.unraisablehook = self.note_unraisable

    def add_fault(self, kind: str, phase: str, site: list[int], detail: str) -> None:
        self.faults.setdefault((kind, function_names(site)), f"first in {phase}: {detail[:2000]}")

    def note_unraisable(self, error: Any) -> None:
        # CPython reports this if it cannot call the callbacks of the collector, as jax has one; 3.13 also if it cannot
        # copy the fields of an instance that it destroys, which it keeps.
        if error.exc_type is MemoryError and error.object in (None, *gc.callbacks):
            self.python_keeps_memory |= sys.version_info >= (3, 13)
            return
        self.unraisable.append(f"{error.exc_type.__name__}: {error.err_msg}")

    def run(self, case: Case) -> tuple[Any, BaseException | None]:
        try:
            return case.run(), None
        except BaseException as error:
            return None, error

    def attempt(self, case: Case, n: int, on: bool, phase: str) -> tuple[int, list[int]]:
        """One run in which allocation `n` fails: the number of failures, and the site of the first."""
        case.prepare()
        before = case.state()
        gc.collect()  # it also empties CPython's free lists, so that what they would serve is allocated
        self.unraisable.clear()
        phase = f"{phase}, allocation {n}"
        os.pwrite(self.progress, f"{self.name}: {phase}".encode().ljust(200), 0)
        injector.start(n, on)
        value, error = self.run(case)
        count, failures, site = injector.stop()
        self.allocations = max(self.allocations, count)
        outcome, detail = self.judge(case, value, error, failures)
        error = value = None
        if outcome not in ("clean", "absorbed", "done"):
            self.add_fault(outcome, phase, site, detail)
        if failures:
            self.outcomes[outcome] += 1
        if self.unraisable:
            self.add_fault("unraisable", phase, site, "; ".join(self.unraisable))
        if failures and outcome == "clean" and case.state() != before:
            self.add_fault("changed", phase, site, f"{before} became {case.state()}")
        outcome, detail = self.judge(case, *self.run(case), 0)
        if outcome != "done":
            self.add_fault(f"{outcome} afterwards", phase, site, detail)
        return failures, site

    def judge(self, case: Case, value: Any, error: BaseException | None, failures: int) -> tuple[str, str]:
        if failures and type(error) is MemoryError:
            return "clean", ""
        if type(error) is not (case.raises or type(None)):
            return "other outcome", repr(value) if error is None else f"{error!r} from {error.__cause__!r}"
        try:
            case.check(value if error is None else error)
        except AssertionError as difference:
            return "wrong", str(difference)
        return ("absorbed" if failures else "done"), ""

    def sweep(self, case: Case, phase: str, *, on: bool = False, repeat: bool = False) -> None:
        """Lets one allocation after the other fail, until none does.

        With ``repeat``, each until the same site fails twice: what is allocated only once shifts the numbers.
        """
        n, last = 0, None
        while n < MAX_ALLOCATIONS:
            failures, site = self.attempt(case, n, on, phase)
            if not failures:
                return
            if repeat and site != last:
                last = site
            else:
                n, last = n + 1, None
        raise AssertionError(f"{self.name} does not end")

    def sweep_without_leaks(self, make: Any) -> Sites:
        """A sweep in which no reference may be gained or lost. Returns the blocks in use after it."""
        case = make()
        self.run(case)
        counts = count_references(case)
        self.sweep(case, "once")
        for i, (before, after) in enumerate(zip(counts, count_references(case), strict=True)):
            if before != after and before < SHARED:
                self.add_fault("reference", "once", [], f"of watched object {i}: {before} became {after}")
        del case
        return live_blocks()

    def run_all(self, make: Any, thorough: bool) -> None:
        case = make()
        allocates, keeps_memory = case.allocates, case.keeps_memory
        self.sweep(case, "the first use", repeat=thorough)
        del case
        live = [live_blocks()]
        has_grown = lambda: live[-1].total() > live[-2].total() and not keeps_memory and not self.python_keeps_memory
        while len(live) < (3 if thorough else 2):
            live.append(self.sweep_without_leaks(make))
        if has_grown():  # Python allocates what it keeps once, a leak comes each time
            live.append(self.sweep_without_leaks(make))
        if thorough:
            self.sweep(make(), "failures from there on", on=True)
        if has_grown():
            for site, extra in (live[-1] - live[-2]).items():
                self.add_fault("leak", "once", list(site), f"{extra} blocks; totals {[one.total() for one in live]}")
        if not self.faults and (self.allocations > 0) != allocates:
            self.add_fault("allocations", "all", [], f"expected {'some' if allocates else 'none'}")

    def print_row(self, with_details: bool) -> None:
        clean, absorbed = self.outcomes["clean"], self.outcomes["absorbed"]
        outcome = f"{len(self.faults)} faults" if self.faults else "ok"
        print(f"{self.name:62} {self.allocations:11} {clean:11} {absorbed:8}  {outcome}")
        for (kind, site), detail in self.faults.items() if with_details else ():
            print(f"    {kind}, {detail}\n        at {site or 'no site'}")


def function_names(site: list[int]) -> str:
    """The functions and lines of a site, if binutils are installed and the module has debugging symbols."""
    addr2line = shutil.which("addr2line")
    if addr2line is None or not site:
        return " < ".join(map(hex, site))
    command = [addr2line, "-Cfspe", sys.modules["partax._core"].__file__ or "", *map(hex, site)]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return " < ".join(line[:120] for line in lines)


def count_references(case: Case) -> list[int]:
    case.prepare()
    gc.collect()
    return [sys.getrefcount(x) for x in case.watched]


def live_blocks() -> Sites:
    """The sites of blocks in use, without those in caches of Python and jax."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    for _ in range(3):
        gc.collect()
    sys._clear_type_cache()  # it keeps the names of attributes
    return collections.Counter(tuple(site) for site in injector.live())


def main() -> None:
    results, progress_path, module, skipped, options = sys.argv[1:]
    os.environ.pop("LD_PRELOAD", None)
    faulthandler.enable()
    importlib.import_module(module)
    settings = json.loads(options)
    injector.watch(sys.modules["partax._core"].__file__)
    gc.collect()
    gc.freeze()
    names = [name for name in OPERATIONS if settings["only"] in name]
    names = [name for name in names if not (settings["quick"] and name.startswith("slow "))]
    if settings["list"]:
        print(*names, sep="\n")
        return
    progress = os.open(progress_path, os.O_WRONLY | os.O_CREAT)
    for name in names[int(skipped) :]:
        runner = Runner(name, progress)
        try:
            runner.run_all(OPERATIONS[name], not settings["quick"])
        except Exception:
            runner.add_fault("broken", "the operation itself", [], traceback.format_exc())
        runner.print_row(with_details=module != "deliberate")
        sys.stdout.flush()
        with Path(results).open("a") as file:
            kinds = [kind for kind, _ in runner.faults]
            print(json.dumps([name, kinds, runner.outcomes.total()]), file=file)


main()
