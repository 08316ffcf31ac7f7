"""Guards the promise that importing partax is silent and starts no backend, that the changelog begins with its version,
and that wheels are built for every Python that it declares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from processes import python

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_import_is_silent_and_takes_in_no_extra() -> None:
    program = "import partax, sys; assert sys.modules.keys().isdisjoint({'safetensors', 'flax', 'rich', 'jinja2'})"
    ran = python("-W", "error", "-c", program)
    assert (ran.stdout, ran.stderr) == ("", "")


def test_no_module_starts_jax_when_it_is_imported() -> None:
    """Until a backend starts, a program may still say which devices there are, and join others."""
    pytest.importorskip("flax")
    program = """
import importlib, pkgutil, jax, partax
names = [module.name for module in pkgutil.walk_packages(partax.__path__, "partax.") if "__main__" not in module.name]
for name in names:
    importlib.import_module(name)
jax.config.update("jax_num_cpu_devices", 3)
print(len(names) > 50, len(jax.devices("cpu")))
"""
    ran = python("-c", program)
    assert ran.stdout.split() == ["True", "3"], ran.stderr


def test_the_changelog_begins_with_the_version(project: dict[str, Any]) -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == project["project"]["version"]


def test_wheels_are_built_for_every_python_that_is_declared(project: dict[str, Any]) -> None:
    prefix = "Programming Language :: Python :: 3."
    minors = [entry.removeprefix(prefix) for entry in project["project"]["classifiers"] if entry.startswith(prefix)]
    assert project["project"]["requires-python"] == f">=3.{minors[0]}"
    versions = [*minors, "13t", "14t"]
    assert project["tool"]["cibuildwheel"]["build"].split() == [f"cp3{version}-*" for version in versions]
