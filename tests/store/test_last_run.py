"""Guards the promise that the command says what became of each call of a script's last run, and makes its programs."""

import re
from pathlib import Path

import pytest
from user_modules import start

from partax.__main__ import main
from processes import python

pytestmark = pytest.mark.compiled_anew

SCRIPT = """
import random, sys
import jax, jax.numpy as jnp, partax
RATE = 0.1

@partax.filter_jit
def step(x): return x * RATE

@partax.filter_jit
def total(x): return x.sum()

@partax.filter_jit
def sample(x): return x + random.random()

if "--warm" in sys.argv:
    step.precompile((jax.ShapeDtypeStruct((3,), "float32"),))
    sys.exit()
x = jnp.arange(3.0)
step(x), total(x), sample(x)
print(step.cache_info().traces, total.cache_info().traces)
"""


def why(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    main(["store", str(folder / "programs"), "--why", str(folder / "script.py")])
    return [re.sub(r"^.*script\.py:", "", line) for line in capsys.readouterr().out.splitlines()]


def script(folder: Path, source: str) -> str:
    done = start(folder, source, PARTAX_STORE=str(folder / "programs"))
    printed, said = done.communicate()
    assert done.returncode == 0, said
    return printed


def test_the_command_says_what_became_of_each_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script(tmp_path, SCRIPT) == "1 1\n"
    first = why(tmp_path, capsys)
    assert script(tmp_path, SCRIPT.replace("0.1", "0.2")) == "1 0\n"
    second = why(tmp_path, capsys)
    refused, *traced = first
    assert refused.startswith("19 sample: not stored: reads 'random.random") and "(global of script.py)" in refused
    assert traced == [f"19 {name}: traced, since nothing was stored for such arguments" for name in ("step", "total")]
    assert second[:2] == [refused, "19 step: traced, since 'RATE' (global of script.py) has changed"]
    assert re.fullmatch(r"19 total: loaded from the store in [\d.]+ s \(saves [\d.]+ s\)", second[2])


@pytest.mark.slow
def test_a_script_is_run_to_make_its_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    said = python("-m", "partax", "store", "programs", "--warm", "script.py", "--warm", cwd=tmp_path).stderr
    assert "step: traced" in said and re.search(r"stored 1 program of [\d,]+ bytes", said)
    assert script(tmp_path, SCRIPT) == "0 1\n"
    main(["store", str(tmp_path / "programs"), "--why", "other.py"])
    assert "found no call of other.py" in capsys.readouterr().out
