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


def deep(w, x):
    for _ in range(400):
        x = jnp.tanh(x @ w) + jnp.sin(x)  # here
    return x


def shallow(w, x):
    return x @ w


w, x = jnp.ones((8, 8)), jnp.ones((4, 8))
jit = {"jax": jax.jit, "partax": partax.filter_jit, "equinox": eqx.filter_jit}[sys.argv[1]]
jit(deep)(w, x)
jit(shallow)(w, x)
print("the script's own output", sys.argv[1:])
sys.exit(int(sys.argv[2]))
"""


def doctor(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(Path(partax.__file__).parents[1]), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "partax", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


@pytest.mark.parametrize("library", ["jax", "partax", "equinox"])
def test_a_script_is_examined(library: str, tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json", "found.json", "script.py", library, "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"the script's own output ['{library}', '0']\n"
    rows = done.stderr[: done.stderr.index("\n\n", done.stderr.index("seconds"))].splitlines()
    names = [row.split()[-1] for row in rows if row.strip() and row.strip()[0].isdigit()]
    assert names.index("deep") < names.index("shallow")
    (deep,) = [it for it in json.loads((tmp_path / "found.json").read_text()) if it["name"] == "deep"]
    (repeat,) = [it for it in deep["findings"] if it["kind"] == "repeat"]
    assert repeat["figures"]["repetitions"] == 400
    assert repeat["source"].endswith("# here") and Path(repeat["file"]).name == "script.py"
    assert f"script.py:{repeat['line']}" in done.stderr


def test_the_script_s_exit_code_and_exception_are_its_own(tmp_path: Path) -> None:
    failed = doctor(tmp_path, "script.py", "jax", "3")
    assert failed.returncode == 3 and "programs were compiled" in failed.stderr
    raised = doctor(tmp_path, "script.py", "none")
    assert raised.returncode == 1 and "KeyError: 'none'" in raised.stderr


def test_what_cannot_be_written_is_said_before_the_script_runs(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json", "nowhere/found.json", "script.py", "jax", "0")
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
