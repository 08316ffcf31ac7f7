"""Checks what a built wheel or sdist consists of: `check_wheel.py wheel|sdist FILE CHECKOUT`. Needs pyelftools."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import time
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile

MAX_BYTES = 1_000_000
# Folders and files of the checkout that a source distribution must have, whole.
FOLDERS = ("csrc", "python", "tests", "bench")
FILES = {"CMakeLists.txt", "CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml"}


def check(holds: bool, message: str) -> None:
    if not holds:
        sys.exit(message)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def is_built(name: str) -> bool:
    return name.startswith(("build/", "dist/")) or "__pycache__" in name or name.endswith((".so", ".o", ".pyc"))


def check_native(name: str, data: bytes, checkout: Path) -> None:
    elf = ELFFile(io.BytesIO(data))
    sections = [section.name for section in elf.iter_sections()]
    extra = [s for s in sections if s.startswith((".debug", ".zdebug")) or s in (".symtab", ".note.gnu.build-id")]
    check(not extra, f"{name} holds {', '.join(extra)}")
    for folder in {str(checkout), str(checkout.parent), str(Path.home())} - {"/"}:
        check(folder.encode() not in data, f"{name} names the folder {folder}")
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    exported = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}
    ours = {symbol for symbol in exported if "partax" in symbol and "PyInit" not in symbol}
    check("PyInit__core" in exported, f"{name} does not export PyInit__core")
    check(not ours, f"{name} exports {', '.join(sorted(ours)[:5])}")


def check_wheel(path: Path, checkout: Path) -> None:
    size = path.stat().st_size
    check(size < MAX_BYTES, f"{path.name} has {size} bytes, at most {MAX_BYTES} are allowed")
    with zipfile.ZipFile(path) as archive:
        names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
        dates = {entry.date_time for entry in archive.infolist()}
        native = [name for name in names if name.endswith(".so")]
        data = {name: archive.read(name) for name in names}
    check(len(names) == len(set(names)), f"{path.name} holds a file twice")
    info = f"{'-'.join(path.name.split('-')[:2])}.dist-info"
    metadata = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE")}
    expected = {f"partax/{name}" for name in files_below(checkout / "python/partax")} | metadata | set(native)
    one = len(native) == 1 and native[0].startswith("partax/_core.cpython-3")
    check(one, f"{path.name} has the native files {native}, expected partax/_core")
    check({"partax/py.typed", "partax/_core.pyi"} <= expected, "py.typed or _core.pyi is gone")
    check(set(names) == expected, f"{path.name} differs from what it should hold by {sorted(set(names) ^ expected)}")
    for name in names:
        if name.startswith("partax/") and name not in native:
            check(data[name] == (checkout / "python" / name).read_bytes(), f"{name} is not that of the checkout")
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    check(dates == {time.gmtime(epoch - epoch % 2)[:6]}, f"{path.name} holds times of its build: {sorted(dates)}")
    check_native(native[0], data[native[0]], checkout)
    print(f"{path.name}: {size} bytes, {len(names)} files as expected, {len(data[native[0]])} bytes of them native")


def check_sdist(path: Path, checkout: Path) -> None:
    with tarfile.open(path) as archive:
        names = {member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()}
    built = [name for name in names if is_built(name)]
    check(not built, f"{path.name} holds what was built: {built}")
    wanted = FILES | {f"{folder}/{name}" for folder in FOLDERS for name in files_below(checkout / folder)}
    check(wanted <= names, f"{path.name} lacks {sorted(wanted - names)}")
    print(f"{path.name}: {path.stat().st_size} bytes, {len(names)} files")


if __name__ == "__main__":
    {"wheel": check_wheel, "sdist": check_sdist}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
