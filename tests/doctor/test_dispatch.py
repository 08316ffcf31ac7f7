"""Guards the promise that what the host takes long for is found, with its cure: flattening by Python, short steps."""

import inspect
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from examining import floats, found_by
from flax import nnx

import partax
from partax import filter_jit
from partax._doctor import host
from partax._doctor.finding import Finding
from partax._doctor.host import find_flattening
from processes import python

found = found_by(find_flattening)
total = lambda tree: sum(leaf.sum() for leaf in jax.tree.leaves(tree))


def boxed() -> type:
    """A class that is registered with functions of its own."""

    class Box:
        def __init__(self, value: Any):
            self.value = value

    def flatten(box: Any) -> Any:
        return (box.value,), None

    jax.tree_util.register_pytree_node(Box, flatten, lambda _, children: Box(*children))
    return Box


@pytest.mark.parametrize(("count", "findings"), [(49, 0), (50, 1)])
def test_a_class_with_registered_functions_is_found_from_a_number_of_nodes_on(count: int, findings: int) -> None:
    box = boxed()
    result = found(filter_jit(total), [box(floats(2)) for _ in range(count)])
    assert len(result) == findings
    for finding in result:
        assert (finding.kind, finding.severity, finding.path) == ("dispatch", "low", "tree")
        assert finding.figures["nodes"] == finding.figures["arrays"] == count
        assert "partax.register_fields(Box" in finding.advice


def test_a_class_whose_fields_are_declared_is_silent() -> None:
    box = boxed()
    tree = [box(floats(2)) for _ in range(50)]
    (finding,) = found(filter_jit(total), tree)
    assert finding.figures["nodes"] == finding.figures["arrays"] == 50
    partax.register_fields(box, data=("value",))
    assert found(filter_jit(total), tree) == []


@pytest.mark.parametrize(("count", "findings"), [(298, 0), (299, 1)])
def test_classes_that_partax_reads_are_found_where_another_jit_calls_python_for_many(count: int, findings: int) -> None:
    state = nnx.State({f"w{i}": nnx.Param(floats(2)) for i in range(count)})  # a node of its own, with the Params in it
    result = found(jax.jit(lambda state, x: total(state) + x), state, floats())
    assert len(result) == findings
    for finding in result:
        assert finding.path == "state" and finding.figures["nodes"] == count + 1 and finding.figures["arrays"] == count
        assert "partax.filter_jit" in finding.advice and "`Param`" in finding.message
    assert found(filter_jit(lambda state, x: total(state) + x), state, floats()) == []


def test_plain_containers_are_silent_and_modules_for_partax() -> None:
    tree = {f"w{i}": [floats(2), (floats(3), None)] for i in range(500)}
    assert found(jax.jit(total), tree) == found(filter_jit(total), tree) == []
    modules = [eqx.nn.Linear(2, 3, key=jax.random.key(0)) for _ in range(400)]
    assert found(filter_jit(lambda modules: total(eqx.filter(modules, eqx.is_array))), modules) == []


STATE = {"w": jnp.ones(4), "m": jnp.zeros(4)}


def train_step(state: Any, x: jax.Array) -> Any:
    gradient = jax.grad(lambda w: ((w * x) ** 2).sum())(state["w"])
    momentum = 0.9 * state["m"] + gradient
    return {"w": state["w"] - 0.1 * momentum, "m": momentum}, (x**2).sum()


def found_short(function: Any, *args: Any, measure: bool = True) -> list[Finding]:
    findings = partax.doctor(function, *args, measure=measure).findings
    return [it for it in findings if it.kind == "dispatch" and "looped_seconds" in it.figures]


@pytest.mark.parametrize(
    ("jit", "begin", "as_advised"),
    [
        (partax.filter_jit, "Run 32 steps", partax.filter_jit),
        (partax.nnx.jit, "Run 32 steps", partax.nnx.jit),
        (jax.jit, "Compile it by `partax.filter_jit`, and run", partax.filter_jit),
        (eqx.filter_jit, "Compile it by `partax.filter_jit`, and run", partax.filter_jit),
        (nnx.jit, "Compile it by `partax.nnx.jit`, and run", partax.nnx.jit),
        (lambda f: f, "Compile it by `partax.filter_jit`, and run", partax.filter_jit),
    ],
    ids=["partax", "nnx of partax", "jax", "Equinox", "nnx", "none"],
)
def test_a_short_step_is_told(jit: Any, begin: str, as_advised: Any) -> None:
    [finding] = found_short(jit(train_step), STATE, jnp.ones(4))
    assert finding.advice.startswith(begin) and finding.advice.endswith("`partax.steps(train_step, 32)`.")
    partax.steps(as_advised(train_step), 32)  # which refuses what partax has not compiled
    assert 0 < finding.figures["looped_seconds"] < finding.figures["step_seconds"] < 1
    assert finding.where.startswith("test_dispatch.py:")


def test_keys_can_be_part_of_it_and_it_is_tried_only_where_that_is_asked_for() -> None:
    assert found_short(train_step, STATE, jnp.ones(4), measure=False) == []
    noisy = lambda state, key: ({"w": state["w"] + jax.random.normal(key, (4,)), "m": state["m"] * 2}, key[None])
    assert len(found_short(noisy, STATE, jax.random.key(0))) == 1


def endless(state: Any, x: jax.Array) -> Any:
    """With zeros it would not end."""
    return train_step(state, jax.lax.while_loop(lambda x: x.sum() <= 0, lambda x: x * 2, x))


def long(state: Any, x: jax.Array) -> Any:
    for _ in range(8):
        state = {"w": jnp.tanh(state["w"] @ state["m"]), "m": state["m"]}
    return {"w": state["w"], "m": state["m"] * 2}, x


@pytest.mark.parametrize(
    ("function", "state"),
    [
        (lambda model, x: x * model["w"] + model["m"], STATE),  # serving: x comes back in its type, no state does
        (lambda w, x: w + x, jnp.ones(4)),
        (lambda state, x: (jax.debug.print("{}", x), train_step(state, x))[1], STATE),
        (endless, STATE),
        (long, {"w": jnp.zeros((384, 384)), "m": jnp.zeros((384, 384))}),
    ],
    ids=["serving", "one array", "an effect", "a while loop", "a long step"],
)
def test_others_are_silent(function: Any, state: Any) -> None:
    assert found_short(function, state, jnp.ones(4)) == []


SCRIPT = """
from typing import Any
import jax, jax.numpy as jnp, partax
from partax._doctor import host, script
script._LEAST_SECONDS = host._LEAST_SECONDS = 0.0

{function}

step = {jit}(train_step)
state, x = {{"w": jnp.ones(4), "m": jnp.zeros(4)}}, jnp.ones(4)
for _ in range({calls}):
    state, total = step(state, x)
"""


@pytest.mark.parametrize(
    ("jit", "calls", "told"),
    [("partax.filter_jit", 20_000, True), ("partax.filter_jit", 50, False), ("jax.jit", 3_000, True)],
)
def test_a_script_s_loop(tmp_path: Path, jit: str, calls: int, told: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(jit=jit, calls=calls, function=inspect.getsource(train_step)))
    done = python("-m", "partax", "doctor", str(script))
    text = done.stdout + done.stderr
    assert (f"in {calls:,} calls" in text) is ("partax.steps(train_step, 32)" in text) is told, text
    assert ("-> Compile it by" in text) is (jit == "jax.jit")
    assert "together" not in text  # a program of the doctor's own


def test_a_small_gain_is_not_worth_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_measured", lambda *_: (1e-4, 8e-5))
    assert found_short(train_step, STATE, jnp.ones(4)) == []
