"""Runs operations with failing allocations, in a process that has the injector preloaded.

Arguments: a file for the results, a file for the progress, the module whose operations these are, and their names.
"""

import collections
import faulthandler
import gc
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import injector
from case import OPERATIONS, Case

MAX_POINTS = 20_000
IMMORTAL = 100_000_000  # counts that say nothing


def note(progress: int, text: str) -> None:
    os.pwrite(progress, text.encode().ljust(200), 0)


class Runner:
    """Runs one operation, and keeps what became of its runs."""

    def __init__(self, name: str, progress: int) -> None:
        self.name = name
        self.progress = progress
        self.points = 0
        self.allocates = True
        self.counts: collections.Counter[str] = collections.Counter()
        self.faults: dict[str, dict[str, Any]] = {}
        self.unraisable: list[str] = []
        self.python_keeps = False
        sys.unraisablehook = self.note_unraisable

    def fault(self, kind: str, where: str, site: list[int], detail: str) -> None:
        known = self.faults.setdefault(f"{kind} {site[:3]}", {"kind": kind, "site": site, "where": where, "times": 0})
        known["times"] += 1
        known["detail"] = detail[:2000]

    def note_unraisable(self, args: Any) -> None:
        # CPython 3.13 says so where it cannot copy the fields of an instance that it destroys, and keeps them.
        if sys.version_info >= (3, 13) and args.exc_type is MemoryError and args.object is None:
            self.python_keeps = True
            return
        self.unraisable.append(f"{args.exc_type.__name__}: {args.err_msg}")

    def run(self, case: Case) -> tuple[Any, BaseException | None]:
        """What it gives, or what it raises."""
        try:
            return case.run(), None
        except BaseException as error:
            return None, error

    def attempt(self, case: Case, n: int, on: bool, phase: str) -> tuple[int, list[int]]:
        """One run in which allocation `n` fails: (how many failed, where the first one did)."""
        where = f"{phase}, allocation {n}"
        case.prepare()
        before = case.state()
        gc.collect()  # empties CPython's free lists too, so that what they would serve is asked for
        self.unraisable.clear()
        note(self.progress, f"{self.name}: {where}")
        injector.start(n, on)
        value, error = self.run(case)
        count, failed, site = injector.stop()
        self.points = max(self.points, count)
        kind, detail = self.judge(case, value, error, failed)
        error = value = None
        if kind not in ("clean", "absorbed", "done"):
            self.fault(kind, where, site, detail)
        if failed:
            self.counts[kind] += 1
        if self.unraisable:
            self.fault("unraisable", where, site, "; ".join(self.unraisable))
        if failed and kind == "clean" and case.state() != before:
            self.fault("changed", where, site, f"{before} became {case.state()}")
        note(self.progress, f"{self.name}: after {where}")
        kind, detail = self.judge(case, *self.run(case), 0)
        if kind != "done":
            self.fault(f"{kind} afterwards", where, site, detail)
        return failed, site

    def judge(self, case: Case, value: Any, error: BaseException | None, failed: int) -> tuple[str, str]:
        if failed and type(error) is MemoryError:
            return "clean", ""
        if error is not None and (case.raises is None or type(error) is not case.raises):
            return "other exception", f"{error!r} from {error.__cause__!r}"
        if error is None and case.raises is not None:
            return "swallowed", repr(value)
        try:
            case.check(value if error is None else error)
        except AssertionError as wrong:
            return "wrong", str(wrong)
        return ("absorbed" if failed else "done"), ""

    def sweep(self, case: Case, on: bool, phase: str, repeat: bool) -> None:
        """Lets one allocation after the other fail, until none does.

        With ``repeat``, each until the same place fails twice: what is allocated once for ever shifts the numbers.
        """
        n, last = 0, None
        while n < MAX_POINTS:
            failed, site = self.attempt(case, n, on, phase)
            if not failed:
                return
            if repeat and site != last:
                last = site
            else:
                n, last = n + 1, None
        raise AssertionError(f"{self.name} does not end")

    def once(self, make: Any) -> collections.Counter[tuple[int, ...]]:
        """A sweep in which no reference may be gained or lost, and the blocks in use after it."""
        case = make()
        self.run(case)
        case.prepare()
        gc.collect()
        counts = [sys.getrefcount(x) for x in case.watched]
        self.sweep(case, False, "once", repeat=False)
        case.prepare()
        gc.collect()
        after = [sys.getrefcount(x) for x in case.watched]
        for i, (a, b) in enumerate(zip(counts, after, strict=True)):
            if a != b and a < IMMORTAL:
                self.fault("reference", f"of watched object {i}", [], f"{a} became {b}")
        del case
        return live_blocks()

    def passes(self, make: Any, thorough: bool) -> None:
        case = make()
        self.allocates, keeps = case.allocates, case.keeps
        self.sweep(case, False, "first time", repeat=thorough)
        del case
        held = [live_blocks()]
        while len(held) < (3 if thorough else 2):
            held.append(self.once(make))
        if held[-1].total() > held[-2].total() and not keeps:  # what Python keeps comes once, a leak each time
            held.append(self.once(make))
        if thorough:
            case = make()
            self.sweep(case, True, "from there on", repeat=False)
        # What is replaced may have come from elsewhere.
        if held[-1].total() > held[-2].total() and not keeps and not self.python_keeps:
            sizes = [blocks.total() for blocks in held]
            for site, extra in (held[-1] - held[-2]).items():
                self.fault("leak", "once", list(site), f"{extra} blocks; in all {sizes}")


def live_blocks() -> collections.Counter[tuple[int, ...]]:
    """Where blocks in use were allocated, without those that caches of Python and jax keep."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    for _ in range(3):
        gc.collect()
    sys._clear_type_cache()  # it keeps the names of attributes
    return collections.Counter(tuple(site) for site in injector.live())


def main() -> None:
    results, progress_path, module, thorough, *names = sys.argv[1:]
    os.environ.pop("LD_PRELOAD", None)
    faulthandler.enable()
    importlib.import_module(module)
    progress = os.open(progress_path, os.O_WRONLY | os.O_CREAT)
    path = importlib.import_module("partax._core").__file__
    base = injector.watch(path)
    gc.collect()
    gc.freeze()
    with Path(results).open("a") as file:
        for name in names:
            runner = Runner(name, progress)
            try:
                runner.passes(OPERATIONS[name], thorough == "1")
            except Exception:
                runner.fault("broken", "the operation itself", [], traceback.format_exc())
            line = {"name": name, "points": runner.points, "counts": runner.counts, "base": base, "core": path}
            line |= {"allocates": runner.allocates, "faults": list(runner.faults.values())}
            print(json.dumps(line), file=file, flush=True)


main()
