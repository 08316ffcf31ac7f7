"""Guards the promise that `python -m partax explain` runs a script as python does and tells each trace in one line."""

import json
import subprocess
from pathlib import Path

import pytest

from partax.__main__ import main
from partax._report.monitor import miss_text
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

@jax.jit
def of_tree(x, tree):
    return x * 2 + tree["a"][0]

def made_anew():
    return jax.jit(lambda x: x - 2)(jnp.ones(2))

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
        of_tree(jnp.ones(n), {"a": [jnp.ones(n)]})
        made_anew()
    of_tree(jnp.ones(3), {"a": [jnp.ones(3)], "b": 1})

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
    assert "script.py:31 step: trace 1, the first" in lines
    assert "script.py:31 step: trace 2, because x: float32[2] -> float32[3]" in lines
    explained, report = done.stderr.split("partax: what has been traced and compiled")
    # What is not partax's has lines of the same form, and what is has no second one.
    assert "script.py:10 inner: trace 1, the first" in lines
    assert "script.py:32 other: trace 2, because x: float32[2] -> float32[3]" in lines
    both = "x: float32[2] -> float32[3]; tree['a'][0]: float32[2] -> float32[3]"
    assert [line for line in lines if " of_tree: " in line] == [
        "script.py:34 of_tree: trace 1, the first",
        f"script.py:34 of_tree: trace 2, because {both}",
        "script.py:36 of_tree: trace 3, because args[1]: dict with 1 child -> dict with 2 children (keys 'b')",
    ]
    assert "script.py:21 <lambda>: trace 2, because the function has been made anew" in lines
    assert "TRACING CACHE MISS" not in explained and explained.count(" step: ") == 2
    assert "step (script.py:8): 2 calls, 2 traces" in report
    assert "other (script.py:23): 2 calls, 2 traces" in report
    assert "<lambda> (script.py:28): gone, 1 traces" in report
    assert "compiled outside of partax" in report and "inner" in report.split("compiled outside of partax")[1]
    assert [function["name"] for function in json.loads((tmp_path / "report.json").read_text())["functions"]]


AS_PYTHON = """
import atexit, os, pickle; os.environ["JAX_ENABLE_X64"] = "1"
import numpy as np, jax.numpy as jnp
class Kind: array = np.array  # which makes no method of it
atexit.register(lambda: print(len(pickle.dumps(Kind()))))
os.chdir("/")
print(len(open(__file__).read()), jnp.ones(1).dtype, Kind().array([1]), __builtins__, __doc__)
np.array([[1], [1, 2]])
"""


@pytest.mark.parametrize("command", ["explain", "doctor"])
def test_a_script_ends_as_python_would_end_it(command: str, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(AS_PYTHON)
    plain, done = (python(*them, "s.py", cwd=tmp_path, code=1) for them in ([], ["-m", "partax", command]))
    assert done.stdout == plain.stdout and done.stderr.endswith(f"\n{plain.stderr}")


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


OF_FLAX = """
import jax.numpy as jnp
from flax import nnx

@nnx.jit
def step(model, x):
    return model(x)

model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
step(model, jnp.ones((1, 2)))
step(model, jnp.ones((3, 2)))
"""


def test_nnx_jit(tmp_path: Path) -> None:
    pytest.importorskip("flax")
    (tmp_path / "script.py").write_text(OF_FLAX)
    told = run(tmp_path, "explain", "script.py").stderr.partition("partax: what has been")[0].splitlines()
    assert [line for line in told if " step: " in line] == [
        "script.py:10 step: trace 1, the first",
        "script.py:11 step: trace 2, because x: float32[1,2] -> float32[3,2]",
    ]


def test_a_static_value_and_what_jax_does_not_tell() -> None:
    start = "TRACING CACHE MISS at x.py:1 (<module>):\n  for g defined at x.py:1\n"
    first = miss_text(f"{start}  never seen function:\n")
    kind = "<class 'jax._src.tree_util.Static'> with pytree metadata"
    now, before = f"{kind} Static(val=3)", f"{kind} Static(val=2)"
    static = miss_text(f"{start}  * at input path [1]['k'], now {now} and before {before}, so it does not match\n")
    changed = "now dict with 1 child and before dict with 2 children, so it does not match"
    places = [miss_text(f"{start}  * at input path {place}, {changed}\n") for place in ("[1]", "[1][0]")]
    untold = miss_text(f"{start}  cache miss explanation unavailable\n")
    lines = [first, static, *places, untold]
    ends = [
        "trace 1, the first", "trace 2, because k: 2 -> 3",
        "trace 3, because the keyword arguments: dict with 2 children -> dict with 1 child",
        "trace 4, because kwargs[0]: dict with 2 children -> dict with 1 child",
        "trace 5, for a reason that jax does not tell",
    ]  # fmt: skip
    assert [line.partition(" g: ")[2] for line in lines if line] == ends
    assert miss_text("Finished tracing") is None


@pytest.mark.parametrize(("value", "expected"), [("1", 2), pytest.param("0", 0, marks=pytest.mark.nightly)])
def test_the_environment_variable(value: str, expected: int) -> None:
    script = "import partax, jax.numpy as jnp; f = partax.filter_jit(lambda x: x + 1); f(jnp.ones(3)); f(jnp.ones(4))"
    done = python("-c", script, PARTAX_EXPLAIN=value)
    assert done.stderr.count("trace ") == expected, done.stderr


SOLVES = """
import sys
import diffrax
import jax.numpy as jnp
import partax

partax.equinox.accelerate()
for libraries in (None,) if sys.argv[1:] else (False, True):
    if libraries is not None:
        partax.explain(libraries=libraries)
    y = jnp.ones(4 if libraries else 3)
    diffrax.diffeqsolve(diffrax.ODETerm(lambda t, y, args: -y), diffrax.Tsit5(), 0.0, 1.0, 0.1, y)
    print("END", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "variable", "inside"),
    [([], "", [False, True]), pytest.param(["by the variable"], "all", [True], marks=pytest.mark.nightly)],
)
def test_what_a_library_calls_for_itself_is_told_where_that_is_asked_for(
    arguments: list[str], variable: str, inside: list[bool], tmp_path: Path
) -> None:
    pytest.importorskip("diffrax")
    (tmp_path / "solves.py").write_text(SOLVES)
    done = python("solves.py", *arguments, cwd=tmp_path, PARTAX_EXPLAIN=variable)
    told = [part.splitlines() for part in done.stderr.split("END\n")[:-1]]
    sites = [
        [line.removeprefix("WARNING:partax:").split(":")[0] for line in part if ": trace " in line] for part in told
    ]
    assert all(any(site.endswith("solves.py") for site in found) for found in sites), done.stderr
    assert [any(site.startswith("diffrax") for site in found) for found in sites] == inside, done.stderr
