"""Guards the promise that arguments that the result replaces, or nothing reads, are found where they are large."""

import dataclasses
import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from examining import examined, floats, ints
from flax import nnx

from partax import filter_jit
from partax import nnx as fast_nnx
from partax._doctor.compiled_programs import Program, examined_program
from partax._doctor.finding import Finding
from partax._doctor.memory import find_not_donated as find
from partax._doctor.memory import find_unused

MIB = 1 << 20
LARGE = 64 * MIB // 4  # numbers of a float32 array that is just large enough


def found(function: Any, *args: Any, **kwargs: Any) -> list[Finding]:
    return list(find(examined(function, *args, memory_limit=kwargs.pop("limit", 1 << 50), **kwargs)))


def sgd(params: Any, x: Any) -> Any:
    loss, slope = jax.value_and_grad(lambda params: jnp.mean(jnp.tanh(params["w"] * x) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, slope), loss


@pytest.mark.parametrize(("size", "count"), [(LARGE - 1, 0), (LARGE, 1)])
def test_it_is_found_from_a_size_on(size: int, count: int) -> None:
    assert found(jax.jit(sgd, donate_argnums=0), {"w": floats(size)}, floats()) == []
    assert found(filter_jit(sgd, donate=("params",)), {"w": floats(size)}, floats()) == []
    findings = found(jax.jit(sgd), {"w": floats(size)}, floats())
    assert len(findings) == count
    for finding in findings:
        assert (finding.kind, finding.severity, finding.path) == ("donation", "low", "params")
        assert finding.figures["bytes"] == finding.figures["params_bytes"] == size * 4
        assert finding.file == __file__ and finding.line == inspect.getsourcelines(sgd)[1]
        assert finding.source == "def sgd(params: Any, x: Any) -> Any:"
        assert 'donate_argnames=("params",)' in finding.advice


def loss(params: Any, x: Any) -> Any:
    return jnp.mean(jnp.cumsum(params["w"] * x) ** 2 + params["b"].sum())


def simulate(u: Any, steps: Any) -> Any:
    return jax.lax.fori_loop(0, steps, lambda _, u: u + 0.1 * jnp.roll(u, 1), u)


def negated(params: Any, x: Any) -> Any:
    return jax.tree.map(lambda p: -p, params)


def half_frozen(params: Any, x: Any) -> Any:
    return {"frozen": params["frozen"], "w": params["w"] - 0.1 * params["frozen"] * x}


ARRAY, PARAMS = floats(LARGE), {"w": floats(LARGE), "b": floats(3)}
# The argument that the result replaces, if there is one.
REPLACED: dict[str, tuple[Any, tuple[Any, ...], list[str]]] = {
    "what a loop carries": (jax.jit(simulate), (ARRAY, ints()), ["u"]),
    "but frozen arrays": (filter_jit(half_frozen), ({"frozen": ARRAY, "w": ARRAY}, floats()), ["params"]),
    "gradients": (jax.jit(jax.grad(loss)), (PARAMS, floats()), []),
    "a list that is the only result": (jax.jit(negated), ([floats(LARGE - 1), floats()], floats()), ["params"]),
    "a prediction": (jax.jit(lambda model, x: x + model), (floats(), ARRAY), []),
    "sorted": (jax.jit(lambda x: jnp.sort(x)), (ARRAY,), []),
    "another dtype": (jax.jit(lambda x: x.astype("float16") + 1), (ARRAY,), []),
    "another shape": (jax.jit(lambda x: x[1:] + x[:-1]), (ARRAY,), []),
}


@pytest.mark.parametrize("name", REPLACED)
def test_what_the_result_replaces_is_found(name: str) -> None:
    function, args, paths = REPLACED[name]
    assert [(it.path, it.figures["bytes"]) for it in found(function, *args)] == [(path, LARGE * 4) for path in paths]


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


def test_the_figure_is_what_xla_spares_which_matters_more_where_the_memory_is_short() -> None:
    args = ({"w": floats(LARGE)}, floats())
    (finding,) = found(jax.jit(sgd), *args, limit=2 * 64 * MIB)
    assert finding.severity == "medium"
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


def swapped(params: Any, x: Any) -> Any:
    return x, jax.tree.map(lambda p: p * 2, params)


def of_script(function: Any, jaxpr: Any, donated: bool = False) -> Any:
    """A program as a script compiles it, of which there is no call: what it gives back is known by jax's own paths."""
    paths = tuple(map(str, jaxpr.jaxpr.debug_info.arg_names))
    program = Program(function.__name__, jaxpr, tuple(donated and "params" in it for it in paths), paths)
    return examined_program(program, function)


@pytest.mark.parametrize(
    ("function", "params", "donated", "findings"),
    [
        (sgd, PARAMS, False, 1), (sgd, PARAMS, True, 0), (negated, PARAMS, False, 1), (swapped, PARAMS, False, 1),
        (negated, [ARRAY, floats()], False, 1), (lambda params, x: x, PARAMS, False, 0),
    ],
)  # fmt: skip
def test_a_program_of_a_script(function: Any, params: Any, donated: bool, findings: int) -> None:
    jaxpr = jax.jit(function, keep_unused=True).trace(params, floats()).jaxpr
    found = list(find(of_script(function, jaxpr, donated)))
    assert [it.path for it in found] == ["params"] * findings
    assert all('`jax.jit(..., donate_argnames=("params",))`' in it.advice for it in found)


@pytest.mark.parametrize("jit", [filter_jit, eqx.filter_jit], ids=["partax", "equinox"])
def test_nothing_is_said_of_a_program_whose_results_have_no_paths_of_the_user_s(jit: Any) -> None:
    def call(params: Any, x: Any) -> Any:
        return jit(negated)(params, x)

    (eqn,) = [it for it in jax.make_jaxpr(call)({"w": floats(LARGE)}, floats()).eqns if "jaxpr" in it.params]
    assert list(find(of_script(negated, eqn.params["jaxpr"]))) == []


READ = (4 << 20) // 4  # numbers of an argument that is just large enough where nothing reads it


def masked(x: Any, mask: Any) -> Any:
    return x * 2


def encode(batch: Any) -> Any:
    return batch["x"] * 2


# The path, the bytes and the arrays of what is found.
UNUSED: dict[str, tuple[Any, tuple[Any, ...], list[tuple[str, int, int]]]] = {
    "an argument": (masked, (floats(), floats(READ)), [("mask", READ * 4, 1)]),
    "a smaller one": (masked, (floats(), floats(READ - 1)), []),
    "what a call takes": (lambda x, mask: jax.jit(masked, keep_unused=True)(x, mask), (floats(), floats(READ)),
        [("mask", READ * 4, 1)]),
    "most of one": (encode, ({"x": floats(READ), "y": floats(READ + 1), "z": floats(3)},),
        [("batch['y']", (READ + 4) * 4, 2)]),
    "half of one": (encode, ({"x": floats(READ + 1), "y": floats(READ + 1)},), []),
    "what is returned": (lambda x, y: (x, y.sum()), (floats(READ), floats(3)), []),
    "what a call reads": (lambda x: jax.jit(lambda x: x.sum())(x), (floats(READ),), []),
    "what a loop reads": (lambda x, n: jax.lax.fori_loop(0, 3, lambda i, c: c + x.sum(), n), (floats(READ), floats()),
        []),
}  # fmt: skip


@pytest.mark.parametrize("jit", [jax.jit, filter_jit], ids=["jax", "partax"])
@pytest.mark.parametrize("name", UNUSED)
def test_what_nothing_reads_is_found(name: str, jit: Any) -> None:
    function, args, expected = UNUSED[name]
    findings = list(find_unused(examined(jit(function), *args)))
    assert [(it.path, it.figures["bytes"], it.figures["arrays"]) for it in findings] == expected
    for finding in findings:
        assert (finding.kind, finding.severity) == ("unused", "low")
        assert (finding.file, finding.line) == (__file__, inspect.getsourcelines(function)[1])
