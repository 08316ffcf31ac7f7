"""Guards the promise that `python -m partax explain` runs a script as python does and tells each trace in one line."""

import json
import subprocess
from pathlib import Path

import pytest

from partax.__main__ import main
from processes import python

SCRIPT = '''
"""A script."""
import sys
import equinox as eqx, jax, jax.numpy as jnp, partax

assert __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals() and __doc__ == "A script."

@partax.filter_jit
def step(x):
    return inner(x) + 1

@jax.jit
def inner(x):
    return x * 2

@eqx.filter_jit
def other(x):
    return x - 1

def main():
    local = partax.filter_jit(lambda x: x + 1)
    local(jnp.ones(2))
    for n in (2, 3):
        step(jnp.ones(n))
        other(jnp.ones(n))
        inner(jnp.ones(n))

print("argv", sys.argv)
main()
sys.exit(3)
'''


def run(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return python("-m", "partax", *arguments, cwd=folder, code=code)


def test_a_script_is_explained_and_reported(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run(tmp_path, "explain", "--json", "report.json", "script.py", "--json", "a b", "-h", code=3)
    assert done.stdout == "argv ['script.py', '--json', 'a b', '-h']\n"
    lines = done.stderr.splitlines()
    assert "script.py:24 step: trace 1, the first" in lines
    assert "script.py:24 step: trace 2, because x: float32[2] -> float32[3]" in lines
    explained, report = done.stderr.split("partax: what has been traced and compiled")
    # Functions of jax.jit have no line, and those of Equinox run by partax.
    assert "script.py:25 other: trace 2, because x: float32[2] -> float32[3]" in lines
    assert " inner: " not in explained and explained.count(" step: ") == 2
    assert "step (script.py:8): 2 calls, 2 traces" in report
    assert "other (script.py:16): 2 calls, 2 traces" in report
    assert "<lambda> (script.py:21): gone, 1 trace," in report
    assert [function["name"] for function in json.loads((tmp_path / "report.json").read_text())["functions"]]


AS_PYTHON = """
import atexit, os, pickle
import numpy as np, jax.numpy as jnp
class Kind: array = np.array  # which makes no method of it
atexit.register(lambda: print(len(pickle.dumps(Kind()))))
os.chdir("/")
print(len(open(__file__).read()), jnp.ones(1).dtype, Kind().array([1]), __builtins__, __doc__)
np.array([[1], [1, 2]])
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["explain", "doctor"])
def test_a_script_ends_as_python_would_end_it(command: str, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(AS_PYTHON)
    plain, done = (python(*them, "s.py", cwd=tmp_path, code=1) for them in ([], ["-m", "partax", command]))
    assert done.stdout == plain.stdout and done.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]
    assert 's.py", line 8, in <module>' in done.stderr


@pytest.mark.slow
def test_a_variable_that_the_script_sets_too_late_is_told(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import os; os.environ['JAX_ENABLE_X64'] = '1'; import jax")
    assert "partax: set JAX_ENABLE_X64 in the shell" in run(tmp_path, "explain", "s.py").stderr


@pytest.mark.slow
def test_modules_beside_the_script_are_found_and_modules_run(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "beside.py").write_text("import sys\nvalue = 7\nif __name__ == '__main__': print(sys.argv[1:])")
    (tmp_path / "in" / "s.py").write_text("import beside; print(beside.value)")
    assert run(tmp_path, "explain", "in/s.py").stdout == "7\n"
    assert run(tmp_path / "in", "explain", "-m", "beside", "x").stdout == "['x']\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        *((["explain", it], 2, f"found no file '{it}'") for it in ("missing.py", ".")),
        ([], 2, "usage"),
        (["--help"], 0, "usage"),
    ],
)
def test_mistakes(arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == code and told in "".join(capsys.readouterr())


@pytest.mark.slow
@pytest.mark.parametrize(("value", "expected"), [("1", 2), pytest.param("0", 0, marks=pytest.mark.nightly)])
def test_the_environment_variable(value: str, expected: int) -> None:
    script = "import partax, jax.numpy as jnp; f = partax.filter_jit(lambda x: x + 1); f(jnp.ones(3)); f(jnp.ones(4))"
    done = python("-c", script, PARTAX_EXPLAIN=value)
    assert done.stderr.count("trace ") == expected, done.stderr
