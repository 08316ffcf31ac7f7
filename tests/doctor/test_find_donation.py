"""Guards the promise that arguments that the result replaces are found where donating them spares much."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from examining import examined, floats
from flax import nnx

from partax import filter_jit
from partax import nnx as fast_nnx
from partax._doctor.arguments import find_not_donated as find
from partax._doctor.compiled_programs import Program, examined_program
from partax._doctor.finding import Finding

MIB = 1 << 20
LARGE = 64 * MIB // 4  # numbers of a float32 array that is just large enough


def found(function: Any, *args: Any, **kwargs: Any) -> list[Finding]:
    return list(find(examined(function, *args, memory_limit=kwargs.pop("limit", 1 << 50), **kwargs)))


def sgd(params: Any, x: Any) -> Any:
    loss, slope = jax.value_and_grad(lambda params: jnp.mean(jnp.tanh(params["w"] * x) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, slope), loss


@pytest.mark.parametrize(("size", "count"), [(LARGE - 1, 0), (LARGE, 1)])
def test_it_is_found_from_a_size_on(size: int, count: int) -> None:
    findings = found(jax.jit(sgd), {"w": floats(size)}, floats())
    assert len(findings) == count
    for finding in findings:
        assert (finding.kind, finding.severity, finding.path) == ("donation", "low", "params")
        assert finding.figures["bytes"] == finding.figures["params_bytes"] == size * 4
        assert finding.file == __file__ and finding.line == inspect.getsourcelines(sgd)[1]
        assert finding.source == "def sgd(params: Any, x: Any) -> Any:"
        assert 'donate_argnames=("params",)' in finding.advice


def test_what_is_donated_is_not_found() -> None:
    assert found(jax.jit(sgd, donate_argnums=0), {"w": floats(LARGE)}, floats()) == []
    assert found(filter_jit(sgd, donate=("params",)), {"w": floats(LARGE)}, floats()) == []


def test_it_matters_more_where_the_memory_is_short() -> None:
    (finding,) = found(jax.jit(sgd), {"w": floats(LARGE)}, floats(), limit=2 * 64 * MIB)
    assert finding.severity == "medium"


def test_frozen_arrays_that_partax_returns_as_they_came_do_not_count() -> None:
    def step(params: Any, x: Any) -> Any:
        return {"frozen": params["frozen"], "w": params["w"] - 0.1 * params["frozen"] * x}

    (finding,) = found(filter_jit(step), {"frozen": floats(LARGE), "w": floats(LARGE)}, floats())
    assert finding.figures["bytes"] == LARGE * 4


@pytest.mark.parametrize("jit", [fast_nnx.jit, nnx.jit], ids=["partax", "flax"])
def test_variables_that_are_changed_in_place_are_found(jit: Any) -> None:
    class Memory(nnx.Module):
        def __init__(self) -> None:
            self.state, self.fixed = nnx.Param(floats(LARGE)), nnx.Param(floats(LARGE))

    def step(memory: Any, x: Any) -> Any:
        memory.state[...] = memory.state[...] * 0.9 + memory.fixed[...] * x
        return x + 1

    (finding,) = found(jit(step), Memory(), floats())
    assert finding.path == "memory" and finding.figures["bytes"] == LARGE * 4


def test_gradients_predictions_and_what_does_not_come_back_are_none() -> None:
    def loss(params: Any, x: Any) -> Any:
        return jnp.mean(jnp.cumsum(params["w"] * x) ** 2 + params["b"].sum())

    params = {"w": floats(LARGE), "b": floats(3)}
    assert found(jax.jit(jax.grad(loss)), params, floats()) == []
    assert found(jax.jit(jax.value_and_grad(loss)), params, floats()) == []
    assert found(jax.jit(lambda model, x: x + model), floats(), floats(LARGE)) == []
    assert found(jax.jit(lambda x: jnp.sort(x)), floats(LARGE)) == []
    assert found(jax.jit(lambda x: x.astype("float16") + 1), floats(LARGE)) == []
    assert found(jax.jit(lambda x: x[1:] + x[:-1]), floats(LARGE)) == []


def test_a_state_that_a_loop_carries_is_found() -> None:
    def simulate(u: Any, steps: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda _, u: u + 0.1 * jnp.roll(u, 1), u)

    (finding,) = found(jax.jit(simulate), floats(LARGE), jax.ShapeDtypeStruct((), "int32"))
    assert finding.path == "u" and finding.figures["bytes"] == LARGE * 4


def test_the_figure_is_what_xla_spares() -> None:
    args = ({"w": floats(LARGE)}, floats())
    (finding,) = found(jax.jit(sgd), *args)
    plain = jax.jit(sgd).lower(*args).compile().memory_analysis()
    donated = jax.jit(sgd, donate_argnums=0).lower(*args).compile().memory_analysis()
    assert donated.alias_size_in_bytes - plain.alias_size_in_bytes == finding.figures["bytes"]


@pytest.mark.parametrize(
    ("wrapper", "words"),
    [(filter_jit, "`filter_jit(donate="), (eqx.filter_jit, "eqx.filter_jit("), (nnx.jit, "nnx.jit(")],
    ids=["partax", "equinox", "nnx"],
)
def test_the_advice_is_for_what_compiles(wrapper: Any, words: str) -> None:
    it = dataclasses.replace(examined(filter_jit(sgd), {"w": floats(LARGE)}, floats()), wrapper=wrapper(sgd))
    (finding,) = find(it)
    assert words in finding.advice


def negated(params: Any, x: Any) -> Any:
    return jax.tree.map(lambda p: -p, params)


def swapped(params: Any, x: Any) -> Any:
    return x, jax.tree.map(lambda p: p * 2, params)


# Programs as a script compiles them, of which there is no call: what each gives back is known by jax's own paths.
@pytest.mark.parametrize(
    ("function", "donated", "findings"),
    [(sgd, False, 1), (sgd, True, 0), (negated, False, 1), (swapped, False, 1), (lambda params, x: x, False, 0)],
)
def test_a_program_of_a_script(function: Any, donated: bool, findings: int) -> None:
    jaxpr = jax.jit(function, keep_unused=True).trace({"w": floats(LARGE), "b": floats()}, floats()).jaxpr
    paths = tuple(map(str, jaxpr.jaxpr.debug_info.arg_names))
    program = Program(function.__name__, jaxpr, tuple(donated and "params" in it for it in paths), paths)
    found = list(find(examined_program(program, function)))
    assert [it.path for it in found] == ["params"] * findings
    assert all('`jax.jit(..., donate_argnames=("params",))`' in it.advice for it in found)


def test_a_list_of_parameters_that_is_the_only_result() -> None:
    params = [floats(LARGE), floats()]
    jaxpr = jax.jit(negated, keep_unused=True).trace(params, floats()).jaxpr
    paths = tuple(map(str, jaxpr.jaxpr.debug_info.arg_names))
    for it in (
        examined_program(Program("negated", jaxpr, (False,) * len(paths), paths), negated),
        examined(jax.jit(negated), params, floats()),
    ):
        assert [finding.path for finding in find(it)] == ["params"]


@pytest.mark.parametrize("jit", [filter_jit, eqx.filter_jit], ids=["partax", "equinox"])
def test_nothing_is_said_of_a_program_whose_results_have_no_paths_of_the_user_s(jit: Any) -> None:
    def call(params: Any, x: Any) -> Any:
        return jit(negated)(params, x)

    (eqn,) = [it for it in jax.make_jaxpr(call)({"w": floats(LARGE)}, floats()).eqns if "jaxpr" in it.params]
    jaxpr = eqn.params["jaxpr"]
    paths = tuple(map(str, jaxpr.jaxpr.debug_info.arg_names))
    program = Program("negated", jaxpr, (False,) * len(paths), paths)
    assert list(find(examined_program(program, negated))) == []
