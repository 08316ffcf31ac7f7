"""`python -m partax doctor script.py` runs a script unchanged and examines what it compiles, traces again and loops."""

import re
import subprocess
from pathlib import Path

import pytest

from partax.__main__ import main
from processes import python


def doctor(folder: Path, *arguments: str, script: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    # The warnings are of functions that are traced again.
    return python("-m", "partax", "doctor", *arguments, cwd=folder, code=None, PYTHONWARNINGS="ignore")


def findings_at(text: str, mark: str) -> list[str]:
    """The findings whose source line ends with a comment, or is the first of a function with this name."""
    findings = re.split(r"\n\n(?=high|medium|low)", text)
    return [finding for finding in findings if f"# {mark}\n" in finding or f"`{mark}` was traced" in finding]


def test_what_cannot_be_written_is_said_before_the_script_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.py").write_text("print('a line')")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        main(["doctor", "--html", str(tmp_path / "nowhere/page.html"), str(tmp_path / "script.py")])
    assert capsys.readouterr().out == ""


def test_a_script_that_only_runs_operations_is_found(tmp_path: Path) -> None:
    done = doctor(tmp_path, "script.py", script="import jax\nfor i in range(1_100):\n    jax.random.key(i)\n")
    assert "dispatch at script.py:3" in done.stderr and "operations one by one" in done.stderr


TRACED = """
import functools, sys
import equinox as eqx, jax, jax.numpy as jnp, partax

def deep(x):
    for _ in range(60):
        x = jnp.tanh(x @ x)  # deep
    return x

@jax.jit
def by_shape(x):
    return deep(x)

@eqx.filter_jit
def by_number(x, n):
    return deep(x) * n

@partax.filter_jit
def becomes_strong(x, y):
    return deep(x) * y, y * jnp.float32(2)

@functools.partial(jax.jit, static_argnames="mode")
def by_mode(x, mode, step):
    return deep(x) * step + (x if mode == "b" else 0)

def renewed(scale):
    @jax.jit
    def by_renewal(x):
        return deep(x) * scale
    return by_renewal

@jax.jit
def twice(x):
    return deep(x)

@jax.jit
def update(state, x):
    return {"a": state["a"] + x, "b": state["b"] * x}

y = jnp.asarray(1.0)
for n in range(3, 8):
    by_shape(jnp.ones((n, n)))
for n in range(2, 5):
    by_number(jnp.ones((3, 3)), n)
    by_mode(jnp.ones((3, 3)), mode="aabc"[n - 1], step=n)
    renewed(jnp.ones(n - 1)[0])(jnp.ones((3, 3)))
    _, y = becomes_strong(jnp.ones((3, 3)), y)
twice(jnp.ones((3, 3))), twice(jnp.ones((4, 4)))
update({"a": jnp.zeros((4096, 4096)), "b": jnp.zeros((4096, 4096))}, 1.0)
print("the script's own output", sys.argv[1:])
sys.exit(int(sys.argv[1]))
"""
REASONS = {
    "by_shape": ("low", "x: float32[5,5] -> float32[6,6]", "such as powers of two"),
    "by_number": ("medium", "n: static int 3 -> ", "Pass `n` as an array"),
    "by_mode": ("low", "mode: static str 'b' -> 'c'", "pass few values"),
    "by_renewal": ("medium", "the function was created again", "create the function once"),
    "becomes_strong": ("medium", "y: weak float32 -> float32", "of the same types"),
}


@pytest.mark.slow
def test_functions_that_are_traced_again_are_found_with_the_reason(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--html", "page.html", "script.py", "3", script=TRACED)
    assert done.returncode == 3 and done.stdout == "the script's own output ['3']\n", done.stderr
    for name, (severity, reason, advice) in REASONS.items():
        (finding,) = findings_at(done.stderr, name)
        assert finding.startswith(f"{severity}: retrace at script.py:") and reason in finding, finding
        assert advice in finding
    assert findings_at(done.stderr, "twice") == []  # a second shape is as it should be
    assert "60 times" in findings_at(done.stderr, "deep")[0]
    assert "`state` (128 MiB) comes back" in done.stderr and 'donate_argnames=("state",)' in done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "<code>by_number</code>" in page and "/script.py" not in page  # paths are relative


LOOPS = """
import jax, jax.numpy as jnp, numpy as np
from partax._doctor import loops
# A tenth of all, in a tenth of the time.
loops._FEWEST_OPERATIONS, loops._FEWEST_REPETITIONS, loops._LOST_SECONDS = 100, 5, 0.0
def loss(w, x):
    return jnp.mean((jnp.tanh(x @ w["first"] + w["shift"]) @ w["last"]) ** 2)
def forgotten():
    w = {"first": jnp.ones((4, 8)), "shift": jnp.zeros(8), "last": jnp.ones((8, 1))}
    for _ in range(15):
        w = jax.tree.map(lambda a, b: a - 0.1 * b / (1 + abs(b)), w, jax.grad(loss)(w, jnp.ones((2, 4))))  # forgotten
@jax.jit
def step(w, x):
    return w - 0.1 * jax.grad(lambda it: jnp.mean((x @ it) ** 2))(w), jnp.sum(w)
def healthy():
    w, total, key, losses = jnp.ones(4), 0.0, jax.random.key(0), []
    data = jnp.ones((64, 4))
    for i in range(40):
        key, now = jax.random.split(key)
        w, loss = step(w, data[jax.random.randint(now, (8,), 0, 64)])
        total = total + loss * 0.5
        losses.append(loss)
        if i % 15 == 0:
            print(float(total), float(jnp.linalg.norm(w)), np.mean(losses))
def waited():
    for i in range(200):
        step(jnp.ones(4), jnp.ones((8, 4)))[0].block_until_ready()  # waited
def fetched():
    for i in range(110):
        float(step(jnp.ones(4), jnp.ones((8, 4)))[1])  # fetched
forgotten(); waited(); fetched(); healthy()
"""
LOOP_FINDINGS = {
    "forgotten": ("dispatch", "operations one by one"),
    "waited": ("host", "calls `block_until_ready` "),
    "fetched": ("host", "fetches a value from the device 110 times"),
}


@pytest.mark.slow
def test_loops_outside_of_jit_are_found_and_nothing_else(tmp_path: Path) -> None:
    done = doctor(tmp_path, "script.py", script=LOOPS)
    assert done.returncode == 0, done.stderr
    for name, (kind, text) in LOOP_FINDINGS.items():
        (finding,) = findings_at(done.stderr, name)
        assert f": {kind} at script.py:" in finding and text in finding
    assert done.stderr.count(" at script.py:") == len(LOOP_FINDINGS)


@pytest.mark.slow
def test_a_script_that_raises_is_not_told_that_all_is_well(tmp_path: Path) -> None:
    done = doctor(tmp_path, "script.py", script="import jax\njax.jit(lambda x: x)(1.0)\nraise ValueError('mine')\n")
    assert done.returncode == 1 and "nothing found" not in done.stderr
    assert done.stderr.index("raised an exception") < done.stderr.index("ValueError: mine")
