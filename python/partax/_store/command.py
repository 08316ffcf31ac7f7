"""`python -m partax store DIR`: what is in a folder of programs, and what of it is to go."""

import argparse
import re
import sys
import time

from partax._pytree.short_text import printable
from partax._pytree.table import table_lines
from partax._store.folder import Folder
from partax._store.records import Record, record_of

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "s": 1, "m": 60, "h": 3600, "d": 86400}


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", help="the folder that was given to `partax.store`")
    command.add_argument("--prune", metavar="SIZE", help="drop what was not used for longest, down to 500MB, 2GB")
    command.add_argument("--older", metavar="TIME", help="drop what was not used for 12h, 30d")
    command.add_argument("--verify", action="store_true", help="read every program, and drop the damaged ones")
    command.add_argument("--clear", action="store_true", help="drop all")


def run(options: argparse.Namespace) -> None:
    folder = Folder(options.folder, sys.maxsize)
    most = 0 if options.clear else _number(options.prune, "--prune")
    dropped = folder.prune(most, _number(options.older, "--older"))
    records = {stored.key: record_of(folder, stored.key) for stored in folder.files()}
    if options.verify:
        for stored in folder.files():
            if records.get(stored.key) is None:
                stored.path.unlink(missing_ok=True)
                dropped += 1
    print("\n".join(_table(folder, records)))
    if dropped:
        print(f"{dropped} dropped")


def _table(folder: Folder, records: dict[str, Record | None]) -> list[str]:
    files = folder.files()
    rows: list[tuple[str, ...]] = [("function", "used", "bytes", "saves s")]
    for stored in files:
        record = records.get(stored.key)
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(stored.used))
        name, saves = ("damaged", "-") if record is None else (printable(record["name"]), f"{record['seconds']:.2f}")
        rows.append((name, when, f"{stored.size:,}", saves))
    rows.append((f"{len(files)} programs", "", f"{sum(stored.size for stored in files):,}", ""))
    return table_lines(rows, {0, 1})


def _number(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+) ?([A-Za-z]*)", text)
    if match is None or match[2] not in _UNITS:
        raise SystemExit(f"{option}: found {text!r}, expected a number with one of {', '.join(filter(None, _UNITS))}")
    return int(match[1]) * _UNITS[match[2]]
