"""Guards the promise that loops outside of any jit are found in a script, and none around a compiled step is."""

import itertools
import json
from pathlib import Path

import pytest
from test_script import doctor

from partax._doctor.one_by_one import OneByOne

SCRIPT = """
import jax
import jax.numpy as jnp
import numpy as np
import time
from flax import nnx
from jax import lax
from partax._doctor import one_by_one as doctor
doctor._ENOUGH = [(sorts, count // 10) for sorts, count in doctor._ENOUGH]  # a tenth of all, in a tenth of the time
doctor._REPEATED, doctor._FEWEST_WRITES, doctor._MANY_CHECKED = 5, 20, 50
doctor._LIST_SECONDS = doctor._PYTHON_SHARE = doctor._LOST_SECONDS = 0.0  # whatever the clock says
def loss(w, x):
    return jnp.mean((jnp.tanh(x @ w["first"] + w["shift"]) @ w["last"]) ** 2)
def forgotten():
    w = {"first": jnp.ones((4, 8)), "shift": jnp.zeros(8), "last": jnp.ones((8, 1))}
    for _ in range(15):
        slope = jax.grad(loss)(w, jnp.ones((2, 4)))  # forgotten
        w = jax.tree.map(lambda a, b: a - 0.1 * b, w, slope)
def few():
    x = jnp.arange(100.0)
    for i in range(50):
        x = jnp.sin(x) + x
        x = (x - jnp.mean(x)) / jnp.std(x)  # few
def scalars():
    total, x = 0.0, jnp.arange(4.0)
    for i in range(250):
        total = jnp.maximum(total + jnp.sin(x) * 0.5, x)  # scalars
def written():
    x = jnp.zeros((300, 2))
    for i in range(25):
        x = x.at[i].set(i)  # written
def grown():
    x = jnp.zeros((1, 2))
    for i in range(12):
        x = jnp.concatenate([x, jnp.ones((1, 2))])  # grown
def made_anew():
    x = jnp.ones(3)
    for i in range(12):
        x = lax.scan(lambda c, y: (c + i * y, None), x, jnp.ones((5, 3)))[0]  # made_anew
@jax.jit
def step(w, x):
    return w - 0.1 * jax.grad(lambda it: jnp.mean((x @ it) ** 2))(w), jnp.sum(w)
def healthy():
    w, total, key = jnp.ones(4), 0.0, jax.random.key(0)
    data = jnp.ones((64, 4))
    for i in range(40):
        key, now = jax.random.split(key)
        w, loss = step(w, data[jax.random.randint(now, (8,), 0, 64)])
        total = total + loss * 0.5
    print(float(total), jnp.mean(w))
    mean, losses = 0.0, []
    for i in range(60):
        w, loss = step(w, jnp.ones((8, 4)))
        mean = 0.9 * mean + 0.1 * loss
        losses.append(loss)
        if i % 15 == 0:
            print(float(mean), float(jnp.linalg.norm(w)), np.mean(losses))
    mesh, spec = jax.sharding.Mesh(jax.devices()[:1], "d"), jax.sharding.PartitionSpec("d")
    print(jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=spec, out_specs=spec)(w))  # without a jit around it
def listed():
    jnp.array([[0.5] * 70] * 70)  # listed
def passed(x=np.ones((1 << 18, 4), np.float32)):
    for i in range(20):
        step(jnp.ones(4), x)  # passed
        jax.device_put(x)  # placed
def averaged(tree=[jnp.ones(3)] * 80):
    for i in range(18):
        tree = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, tree, tree)  # averaged
def waited():
    for i in range(200):
        step(jnp.ones(4), jnp.ones((8, 4)))[0].block_until_ready()  # waited
def by_python(turned=nnx.jit(lambda wide, x: x + wide.all[0][...])):
    wide, x = nnx.Dict(all=nnx.List([nnx.Param(jnp.ones(2)) for _ in range(3)])), jnp.ones(2)
    for i in range(110):
        x = turned(wide, x)  # by_python
def checked():
    with jax.debug_nans(True):
        for i in range(51):
            jnp.tanh(i)  # checked
def several(drops=jax.jit(lambda w: jnp.tanh(w @ w))):  # dropped
    heads, w = [jax.jit(lambda w, n=n: jnp.tanh(w @ w) * n) for n in range(5)], jnp.ones((4, 4))  # which live on
    print([head(w) for _ in range(9) for head in heads], [jax.jit(lambda w: jnp.tile(w, n))(w) for n in range(2, 6)])
    print(jnp.stack([jax.random.normal(key, (3,)) + 1 for key in jax.random.split(jax.random.key(0), 100)]).shape)
    [(time.perf_counter(), heads[0](w).block_until_ready()) for _ in range(120)]  # timed
    for i in range(12):
        drops(w), jax.clear_caches()
def fetched():
    for i in range(110):
        float(step(jnp.ones(4), jnp.ones((8, 4)))[1])  # fetched
averaged(); waited(); by_python(); checked()
forgotten(); few(); scalars(); written(); grown(); made_anew(); listed(); passed(); fetched(); healthy(); several()
"""
FOUND = {
    "forgotten": ("dispatch", "operations one by one"),
    "few": ("dispatch", "operations one by one"),
    "scalars": ("dispatch", "runs 1,000 operations one by one, from 4 places, which took about"),
    "listed": ("host", "`jnp.array` makes 1 array of Python lists here"),
    "passed": ("host", "`step` is called 20 times with the same NumPy array, `x` (float32[262144,4])"),
    "fetched": ("host", "fetches a value from the device 110 times"),
    "written": ("dispatch", "copy an array to write a part of it"),
    "grown": ("retrace", "`concatenate` was compiled 12 times at this line, for an array that grows"),
    "placed": ("host", "`jax.device_put` is called 20 times with the same NumPy array"),
    "averaged": ("dispatch", "runs 4,320 operations one by one, from 3 places"),
    "waited": ("host", "calls `block_until_ready` "),
    "by_python": ("dispatch", "`nnx.jit` has compiled, which takes arguments apart by Python"),
    "checked": ("host", "`jax_debug_nans` is on while the loop"),
    "timed": ("host", "calls `block_until_ready` 120 times"),
    "dropped": ("retrace", "its program was dropped, as `jax.clear_caches()` does"),
    "made_anew": ("retrace", "`scan` was traced and compiled 12 times"),
}


def test_loops_outside_of_jit_are_found_and_nothing_else(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json", "found.json", "script.py", script=SCRIPT)
    assert done.returncode == 0, done.stderr
    diagnoses = json.loads((tmp_path / "found.json").read_text())
    found = [(it["source"].rpartition("# ")[2], it) for diagnosis in diagnoses for it in diagnosis["findings"]]
    assert sorted(name for name, _ in found) == sorted(FOUND)
    for name, finding in found:
        kind, text = FOUND[name]
        assert finding["kind"] == kind and text in finding["message"] and finding["advice"]
        assert finding["severity"] == {"written": "low", "grown": "low", "timed": "info"}.get(name, finding["severity"])


def test_a_script_that_raises_is_not_told_that_all_is_well(tmp_path: Path) -> None:
    done = doctor(tmp_path, "script.py", script="import jax\njax.jit(lambda x: x)(1.0)\nraise ValueError('mine')\n")
    assert done.returncode == 1 and "nothing found" not in done.stderr
    assert done.stderr.index("raised an exception") < done.stderr.index("ValueError: mine")


def test_one_operation_again_and_again_is_found_where_nothing_is_compiled(tmp_path: Path) -> None:
    done = doctor(tmp_path, "script.py", script="import jax\nfor i in range(1_600):\n    jax.random.key(i)\n")
    assert " operations one by one, from 1 place, which" in done.stderr


def test_what_a_jit_does_by_python_is_told_from_a_share_of_the_loop_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for took, count in ((0.0025, 0), (0.0035, 1)):
        noted, clock = OneByOne(), itertools.count(0.0, 0.01)
        monkeypatch.setattr("time.perf_counter", clock.__next__)
        for _ in range(200):
            noted.note_jit("nnx.jit", None, took)
        assert len(list(noted.diagnoses())) == count
