"""`python -m partax store DIR`: what is in a directory of programs, what is dropped, and what a script does with it."""

import argparse
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from partax._pytree.call_site import site_text
from partax._pytree.short_text import counted, printable, table_lines
from partax._store import ahead
from partax._store.records import read_record
from partax._store.switch import folder_at, folder_of, store

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "s": 1, "m": 60, "h": 3600, "d": 86400}


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", help="the folder that was given to `partax.store`")
    command.add_argument("--prune", metavar="SIZE", help="drop what was not used for longest, down to 500MB, 2GB")
    command.add_argument("--older", metavar="TIME", help="drop what was not used for 12h, 30d")
    command.add_argument("--verify", action="store_true", help="read every program, and drop the damaged ones")
    command.add_argument("--clear", action="store_true", help="drop all")
    command.add_argument("--why", metavar="script.py", help="say what became of each call of this script's last run")
    command.add_argument("--warm", nargs="...", help="run a script, or -m and a module, with this folder; comes last")


def run(options: argparse.Namespace, run_script: Callable[[argparse.Namespace], None]) -> None:
    if options.warm:
        _warm(options, run_script)
        return
    folder = folder_at(options.folder, sys.maxsize)
    if options.why is not None:
        _, calls = ahead.read_run(folder.read_list(ahead.list_of(options.why)))
        print("\n".join(_lines(calls) or [f"found no call of {options.why} in {options.folder}"]))
        return
    max_bytes = 0 if options.clear else _number(options.prune, "--prune")
    dropped = folder.prune(max_bytes, _number(options.older, "--older"))
    rows: list[tuple[str, ...]] = [("function", "used", "bytes", "saves s")]
    sizes: list[int] = []
    for stored in folder.files():
        record = read_record(folder, stored.key, drops=options.verify)
        if not stored.path.exists():
            dropped += 1
            continue
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(stored.used))
        name, saves = ("unreadable", "-") if record is None else (printable(record["name"]), f"{record['seconds']:.2f}")
        rows.append((name, when, f"{stored.size:,}", saves))
        sizes.append(stored.size)
    rows.append((f"{len(sizes)} programs", "", f"{sum(sizes):,}", ""))
    print("\n".join(table_lines(rows, {0, 1})))
    if dropped:
        print(f"{dropped} dropped")


def _lines(calls: ahead.Calls) -> list[str]:
    return [printable(f"{site_text((file, line))} {what}") for file, line, what in sorted(calls)]


def _warm(options: argparse.Namespace, run_script: Callable[[argparse.Namespace], None]) -> None:
    is_module = options.warm[0] == "-m"
    script, *arguments = options.warm[is_module:] or [""]
    if not script or not (is_module or os.path.isfile(script)):
        raise SystemExit(f"--warm: found no file {script!r}, expected a Python script, or -m and a module")
    store(options.folder)
    folder: Any = folder_of(None)
    before = {stored.key for stored in folder.files()}
    try:
        run_script(argparse.Namespace(module=is_module, script=script, arguments=arguments))
    finally:  # also if the script exits
        for thread in threading.enumerate():
            if thread.name == "partax store":
                thread.join()
        new = [stored.size for stored in folder.files() if stored.key not in before]
        what = f"stored {counted(len(new), 'program')} of {sum(new):,} bytes in {options.folder}"
        print("\n".join([*_lines(folder.ahead.calls), what]), file=sys.stderr)


def _number(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+) ?([A-Za-z]*)", text)
    if match is None or match[2] not in _UNITS:
        raise SystemExit(f"{option}: found {text!r}, expected a number with one of {', '.join(filter(None, _UNITS))}")
    return int(match[1]) * _UNITS[match[2]]
