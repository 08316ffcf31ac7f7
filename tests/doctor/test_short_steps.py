"""Guards the doctor's advice to run many short steps in one call: where it gains much, and nowhere else."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import partax
from partax._doctor import dispatch
from partax._doctor.finding import Finding
from processes import python

STATE = {"w": jnp.ones(4), "m": jnp.zeros(4)}


def train_step(state: Any, x: jax.Array) -> Any:
    gradient = jax.grad(lambda w: ((w * x) ** 2).sum())(state["w"])
    momentum = 0.9 * state["m"] + gradient
    return {"w": state["w"] - 0.1 * momentum, "m": momentum}, (x**2).sum()


def found(function: Any, *args: Any, measure: bool = True) -> list[Finding]:
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
    [finding] = found(jit(train_step), STATE, jnp.ones(4))
    assert finding.advice.startswith(begin) and finding.advice.endswith("`partax.steps(train_step, 32)`.")
    partax.steps(as_advised(train_step), 32)  # which refuses what partax has not compiled
    assert 0 < finding.figures["looped_seconds"] < finding.figures["step_seconds"] < 1
    assert finding.where.startswith("test_short_steps.py:")


def test_it_is_tried_only_where_that_is_asked_for() -> None:
    assert found(train_step, STATE, jnp.ones(4), measure=False) == []


def with_a_dropout_key(state: Any, key: jax.Array) -> Any:
    return {"w": state["w"] + jax.random.normal(key, (4,)), "m": state["m"] * 2}, state["w"].sum()


def test_keys_can_be_part_of_it() -> None:
    assert len(found(with_a_dropout_key, STATE, jax.random.key(0))) == 1


def printing(state: Any, x: jax.Array) -> Any:
    jax.debug.print("{}", x)
    return train_step(state, x)


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
        (printing, STATE),
        (endless, STATE),
        (long, {"w": jnp.zeros((384, 384)), "m": jnp.zeros((384, 384))}),
    ],
    ids=["serving", "one array", "an effect", "a while loop", "a long step"],
)
def test_others_are_silent(function: Any, state: Any) -> None:
    assert found(function, state, jnp.ones(4)) == []


SCRIPT = """
from typing import Any
import jax, jax.numpy as jnp, partax

{function}

step = partax.filter_jit(train_step)
state, x = {{"w": jnp.ones(4), "m": jnp.zeros(4)}}, jnp.ones(4)
for _ in range({calls}):
    state, total = step(state, x)
"""


@pytest.mark.parametrize(("calls", "told"), [(20_000, True), (50, False)])
def test_a_script_s_loop(tmp_path: Path, calls: int, told: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(calls=calls, function=inspect.getsource(train_step)))
    code = (
        "import sys, runpy\n"
        "from partax._doctor import script\n"
        "script._LEAST_SECONDS = 0.0\n"
        f"sys.argv = ['partax', 'doctor', {str(script)!r}]\n"
        "runpy.run_module('partax', run_name='__main__')"
    )
    done = python("-c", code)
    text = done.stdout + done.stderr
    assert ("partax.steps(train_step, 32)" in text) is told, text
    if told:
        assert f"in the {calls:,} calls here" in text
    assert "together" not in text  # a program of the doctor's own


def test_a_small_gain_is_not_worth_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_measured", lambda *_: (1e-4, 8e-5))
    assert found(train_step, STATE, jnp.ones(4)) == []
