"""`python -m partax store DIR`: what is in a directory of programs, and how much of it stays."""

import argparse
import re
import sys
import time

from partax._pytree.short_text import printable
from partax._pytree.table import table_lines
from partax._store.folder import Folder
from partax._store.records import read_record

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", help="the folder that was given to `partax.store`")
    command.add_argument("--prune", metavar="SIZE", help="drop what was not used for longest, down to 500MB, 2GB, 0")


def run(options: argparse.Namespace) -> None:
    folder = Folder(options.folder, sys.maxsize)
    dropped = 0 if options.prune is None else folder.prune(_number_of_bytes(options.prune))
    files = folder.files()
    rows: list[tuple[str, ...]] = [("function", "used", "bytes", "saves s")]
    for stored in files:
        record = read_record(folder, stored.key)
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(stored.used))
        name, saves = ("damaged", "-") if record is None else (printable(record["name"]), f"{record['seconds']:.2f}")
        rows.append((name, when, f"{stored.size:,}", saves))
    rows.append((f"{len(files)} programs", "", f"{sum(stored.size for stored in files):,}", ""))
    print("\n".join(table_lines(rows, {0, 1})))
    if dropped:
        print(f"{dropped} dropped")


def _number_of_bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+) ?([A-Za-z]*)", text)
    if match is None or match[2] not in _UNITS:
        raise SystemExit(f"--prune: found {text!r}, expected a number with one of {', '.join(filter(None, _UNITS))}")
    return int(match[1]) * _UNITS[match[2]]
