"""Compiles the injector and the deliberately faulty module, for one Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent


def compiler() -> str | None:
    """The C++ compiler, if there is one."""
    return shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")


def build(name: str, directory: Path) -> Path:
    """Compiles `name`.cpp into an extension module in `directory`."""
    found = compiler()
    if found is None:
        raise RuntimeError("no C++ compiler: install g++, or name one by CXX")
    target = directory / f"{name}.so"
    flags = ["-std=c++17", "-O1", "-g", "-fPIC", "-shared", "-fno-optimize-sibling-calls", "-Wall", "-Wextra"]
    include = f"-I{sysconfig.get_paths()['include']}"
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(
        [found, *flags, include, str(HERE / f"{name}.cpp"), "-o", str(target), "-ldl"], check=True, env=plain
    )
    return target
