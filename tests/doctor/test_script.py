"""`python -m partax doctor script.py` runs a script unchanged and examines what it compiles, the costliest first."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import partax
from partax._doctor.script import Program, Watch, diagnoses

SCRIPT = """
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import partax


def named(name):
    def deep(w, x):
        for _ in range(400):
            x = jnp.tanh(x @ w) + jnp.sin(x)  # here
        return x

    deep.__name__ = name
    return deep


def shallow(w, x):
    return x @ w


w, x = jnp.ones((8, 8)), jnp.ones((4, 8))
for jit, name in [(jax.jit, "deep_jax"), (partax.filter_jit, "deep_partax"), (eqx.filter_jit, "deep_equinox")]:
    jit(named(name))(w, x)
jax.jit(shallow)(w, x)
print("the script's own output", sys.argv[1:])
sys.exit(int(sys.argv[1]))
"""


def doctor(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(Path(partax.__file__).parents[1]), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "partax", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


def test_a_script_is_examined_and_its_exit_code_is_its_own(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json", "found.json", "script.py", "3")
    assert done.returncode == 3, done.stderr
    assert done.stdout == "the script's own output ['3']\n"
    rows = done.stderr[: done.stderr.index("\n\n", done.stderr.index("seconds"))].splitlines()
    names = [row.split()[-1] for row in rows if row.strip() and row.strip()[0].isdigit()]
    found = json.loads((tmp_path / "found.json").read_text())
    for library in ("jax", "partax", "equinox"):
        assert names.index(f"deep_{library}") < names.index("shallow")
        (deep,) = [it for it in found if it["name"] == f"deep_{library}"]
        (repeat,) = [it for it in deep["findings"] if it["kind"] == "repeat"]
        assert repeat["figures"]["repetitions"] == 400
        assert repeat["source"].endswith("# here") and Path(repeat["file"]).name == "script.py"
        assert f"script.py:{repeat['line']}" in done.stderr


def test_an_exception_of_the_script_is_its_own(tmp_path: Path) -> None:
    raised = doctor(tmp_path, "script.py", "none")
    assert raised.returncode == 1 and "ValueError: invalid literal" in raised.stderr
    assert "programs were compiled" in raised.stderr


def test_what_cannot_be_written_is_said_before_the_script_runs(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json", "nowhere/found.json", "script.py", "0")
    assert done.returncode == 1 and "nowhere" in done.stderr and "may write" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("method", ["_note", "costliest"])
def test_a_mistake_of_ours_is_not_the_script_s(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("a mistake of ours")

    lowering = "jax._src.interpreters.pxla.lower_sharding_computation"
    monkeypatch.setattr(lowering, pkgutil.resolve_name(lowering))  # which puts it back when the test ends
    watch = Watch()
    program = Program("name", None, (), (), 1, 1.0, 1.0)
    if method == "_note":
        monkeypatch.setattr(Watch, "_note", fails)
        assert float(jax.jit(lambda x: x * 17)(jnp.float32(2))) == 34
    else:
        monkeypatch.setattr(Watch, "costliest", lambda self: [program])
        assert diagnoses(watch) == []
    assert "please report this" in caplog.text


def test_no_script(tmp_path: Path) -> None:
    done = doctor(tmp_path, "nothing.py")
    assert done.returncode == 2 and "found no file 'nothing.py'" in done.stderr
