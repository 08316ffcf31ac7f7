"""Guards the promise that the command says what became of each call of a script's last run, and makes its programs."""

import re
from pathlib import Path

import pytest
from test_store import process

from partax.__main__ import main
from processes import python

pytestmark = pytest.mark.compiled_anew

SCRIPT = """
import random, sys
import jax, jax.numpy as jnp, partax
RATE = 0.1
step = partax.filter_jit(lambda x: x * RATE)
total = partax.filter_jit(lambda x: x.sum())
sample = partax.filter_jit(lambda x: x + random.random())
if "--warm" in sys.argv:
    for each in step, total:
        each.precompile((jax.ShapeDtypeStruct((3,), "float32"),))
    sys.exit()
x = jnp.arange(3.0)
assert abs(step(x) - x * RATE).max() + abs(total(x) - 3) + abs(sample(x) - x).max() < 2
print(step.cache_info().traces, total.cache_info().traces)
"""


def test_the_programs_of_a_script_are_made_and_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    said = python("-m", "partax", "store", "programs", "--warm", "script.py", "--warm", cwd=tmp_path).stderr
    assert "script.py:10 <lambda>: traced" in said and re.search(r"stored 2 programs of [\d,]+ bytes", said)
    assert process(SCRIPT.replace("0.1", "0.2"), tmp_path, PARTAX_STORE="programs")[0] == "1 0"
    main(["store", str(tmp_path / "programs"), "--why", str(tmp_path / "script.py")])
    loaded, refused, traced = (line.rpartition("script.py:")[2] for line in capsys.readouterr().out.splitlines())
    assert re.fullmatch(r"13 <lambda>: loaded from the store in [\d.]+ s \(saves [\d.]+ s\)", loaded)
    assert "not stored: reads 'random.random" in refused and "(global of" in refused
    assert traced == "13 <lambda>: traced, since 'RATE' (global of script.py) has changed"


@pytest.mark.parametrize("script", [["absent.py"], ["-m"]])
def test_a_script_to_warm_that_is_absent_is_named(script: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--warm: found no file"):
        main(["store", str(tmp_path / "programs"), "--warm", *script])
