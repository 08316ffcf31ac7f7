"""Checks what a built wheel or sdist consists of: `check_wheel.py wheel|sdist FILE CHECKOUT`.

Needs what reads the native files: pyelftools for Linux, macholib for macOS, pefile for Windows.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MAX_BYTES = 1_000_000
# Folders and files of the checkout that a source distribution must have, whole.
FOLDERS = ("csrc", "python", "tests", "bench", "docs", ".ci")
FILES = {
    "CMakeLists.txt", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "pyproject.toml",
    "sbom.cdx.json.in", ".clang-format", ".clang-tidy",
}  # fmt: skip


def check(holds: bool, message: str) -> None:
    if not holds:
        sys.exit(message)


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def is_built(name: str) -> bool:
    return name.startswith(("build/", "dist/")) or "__pycache__" in name or name.endswith((".so", ".o", ".pyc"))


def check_native(name: str, data: bytes, checkout: Path, platform: str) -> None:
    """It is for the wheel's platform, needs nothing but the system, and tells nothing of the machine that built it."""
    for folder in {str(checkout), str(checkout.parent), str(Path.home())} - {"/"}:
        check(folder.encode() not in data, f"{name} names the folder {folder}")
    kind = next((it for it in (ELF, MACH_O, PE) if platform.startswith(it.platform)), None)
    if kind is None:
        sys.exit(f"{name} is in a wheel for {platform!r}, of which nothing is known")
    processor, libraries, exported = kind.read(data)
    check(platform.endswith(processor), f"{name} is for {processor}, its wheel for {platform}")
    foreign = [library for library in libraries if not kind.of_system.fullmatch(library)]
    check(not foreign, f"{name} needs {', '.join(foreign)}, which may not be there")
    ours = {symbol for symbol in exported if "partax" in symbol and "PyInit" not in symbol}
    check("PyInit__core" in exported, f"{name} does not export PyInit__core")
    check(not ours, f"{name} exports {', '.join(sorted(ours)[:5])}")


Read = tuple[str, list[str], set[str]]
"""The processor as in a wheel's tag, the libraries that are needed, the names that are exported."""


def read_elf(data: bytes) -> Read:
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(io.BytesIO(data))
    sections = [section.name for section in elf.iter_sections()]
    extra = [s for s in sections if s.startswith((".debug", ".zdebug")) or s in (".symtab", ".note.gnu.build-id")]
    check(not extra, f"the native file holds {', '.join(extra)}")
    needed = [tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    exported = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}
    return {"x64": "x86_64", "AArch64": "aarch64"}[elf.get_machine_arch()], needed, exported


def read_mach_o(data: bytes) -> Read:
    from macholib.MachO import MachO
    from macholib.SymbolTable import SymbolTable

    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(data)
    try:
        binary = MachO(file.name)
        (header,) = binary.headers
        table = SymbolTable(binary, header)
    finally:
        os.unlink(file.name)
    needed = [name for _, _, name in header.walkRelocatables()]
    exported = {name.decode().strip("\0").removeprefix("_") for symbol, name in table.extdefsyms or ()}
    return {0x0100000C: "arm64", 0x01000007: "x86_64"}[header.header.cputype], needed, exported


def read_pe(data: bytes) -> Read:
    import pefile

    binary = pefile.PE(data=data)
    needed = [entry.dll.decode().lower() for entry in binary.DIRECTORY_ENTRY_IMPORT]
    exported = {symbol.name.decode() for symbol in binary.DIRECTORY_ENTRY_EXPORT.symbols if symbol.name}
    return {0x8664: "amd64", 0xAA64: "arm64"}[binary.FILE_HEADER.Machine], needed, exported


class Format(NamedTuple):
    """A format of native files: the platform's tag begins so, how a file is read, what the system always has."""

    platform: str
    read: Callable[[bytes], Read]
    of_system: re.Pattern[str]


ELF = Format(
    "manylinux", read_elf, re.compile(r"lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+)\.so\.\d+|ld-linux-[a-z0-9-]+\.so\.\d")
)
MACH_O = Format("macosx", read_mach_o, re.compile(r"/usr/lib/lib(System|c\+\+)[.\w]*\.dylib"))
PE = Format("win", read_pe, re.compile(r"(python3\d*t?|kernel32|vcruntime140(_1)?|msvcp140|api-ms-win-[\w-]+)\.dll"))


def check_wheel(path: Path, checkout: Path) -> None:
    size = path.stat().st_size
    check(size < MAX_BYTES, f"{path.name} has {size} bytes, at most {MAX_BYTES} are allowed")
    with zipfile.ZipFile(path) as archive:
        names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
        dates = {entry.date_time for entry in archive.infolist()}
        native = [name for name in names if name.endswith((".so", ".pyd"))]
        data = {name: archive.read(name) for name in names}
    check(len(names) == len(set(names)), f"{path.name} holds a file twice")
    info = f"{'-'.join(path.name.split('-')[:2])}.dist-info"
    of_info = ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE", "sboms/partax.cdx.json")
    metadata = {f"{info}/{name}" for name in of_info}
    ours = files_below(checkout / "python")
    expected = ours | metadata | set(native)
    one = len(native) == 1 and re.match(r"partax/_core\.(cpython-|cp)3", native[0]) is not None
    check(one, f"{path.name} has the native files {native}, expected partax/_core")
    check({"partax/py.typed", "partax/_core.pyi"} <= expected, "py.typed or _core.pyi is gone")
    check(set(names) == expected, f"{path.name} differs from what it should hold by {sorted(set(names) ^ expected)}")
    for name in names:
        if name in ours - set(native):
            check(data[name] == (checkout / "python" / name).read_bytes(), f"{name} is not that of the checkout")
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    check(dates == {time.gmtime(epoch - epoch % 2)[:6]}, f"{path.name} holds times of its build: {sorted(dates)}")
    bill = json.loads(data[f"{info}/sboms/partax.cdx.json"])
    built_with = {it["name"]: it["version"] for it in bill["components"]}
    check(list(built_with) == ["pybind11"] and bool(built_with["pybind11"]), f"an SBOM with {built_with}")
    check(bill["metadata"]["component"]["version"] == path.name.split("-")[1], "an SBOM of another version")
    _, _, python, abi, platform = path.stem.split("-")
    tag = f".cp{abi[2:]}-" if platform.startswith("win") else f".cpython-{abi[2:]}-"
    check(python == abi.rstrip("t") and tag in native[0], f"{native[0]} is not for {abi}")
    check_native(native[0], data[native[0]], checkout, platform.split(".")[0])
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
    {"wheel": check_wheel, "sdist": check_sdist}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]).resolve())
