"""Guards the promise that programs that need much memory, and scans that autodiff keeps, are found by line, and that
the estimate of the live bytes is near what XLA measures.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from examining import findings_of_kind, floats, ints, marked

import partax

MIB, GIB = 1 << 20, 1 << 30
too_much = findings_of_kind("memory")
kept = findings_of_kind("checkpoint")


def attend(x: Any) -> Any:
    scores = x @ x.T  # scores
    return jnp.cumsum(scores, axis=1).sum(1)


def of_xla(function: Any, *args: Any) -> int:
    """XLA's figure, asked for without the doctor."""
    stats: Any = jax.jit(function).lower(*args).compile().memory_analysis()
    return stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes


@pytest.mark.parametrize("compile", [True, False])
def test_a_program_over_the_limit_is_found_with_the_line_of_its_largest_array(compile: bool) -> None:
    peak = of_xla(attend, floats(1000, 64))
    (finding,) = too_much(jax.jit(attend), floats(1000, 64), memory_limit=peak - 1, compile=compile)
    assert (finding.kind, finding.severity, finding.line) == ("memory", "high", marked(attend, "scores"))
    assert finding.figures["peak_bytes"] == peak and finding.figures["limit_bytes"] == peak - 1
    assert finding.figures["largest_bytes"] == 1000 * 1000 * 4
    assert "float32[1000,1000] (3.81 MiB)" in finding.message and "XLA's figure" in finding.message


@pytest.mark.parametrize(("share", "severities"), [(0.81, ["medium"]), (0.79, [])])
def test_one_that_nearly_fills_it_is_of_medium_severity(share: float, severities: list[str]) -> None:
    limit = int(of_xla(attend, floats(1000, 64)) / share)
    findings = too_much(attend, floats(1000, 64), memory_limit=limit, compile=True)
    assert [it.severity for it in findings] == severities


def test_what_the_compiler_fuses_away_is_not_found() -> None:
    def distances(x: Any) -> Any:
        return jnp.sqrt(((x[:, None] - x[None]) ** 2).sum(-1)).sum()

    assert of_xla(distances, floats(20_000, 3)) < GIB
    assert too_much(distances, floats(20_000, 3), memory_limit=64 * GIB) == []


def embed(tokens: Any, table: Any) -> Any:
    rows = jax.nn.one_hot(tokens, table.shape[0])  # rows
    return rows @ table


@pytest.mark.parametrize(("tokens", "count"), [(1 << 12, 0), ((1 << 12) + 2, 1)])
def test_an_array_of_a_gib_that_dwarfs_the_arguments_is_found(tokens: int, count: int) -> None:
    findings = too_much(embed, ints(tokens), floats(65535, 8), memory_limit=1 << 50)
    assert len(findings) == count
    for finding in findings:
        assert (finding.severity, finding.line) == ("medium", marked(embed, "rows"))
        assert finding.figures["largest_bytes"] == tokens * 65535 * 4 and "jax.lax.map" in finding.advice


def deep_cell(h: Any, x: Any, w: Any) -> Any:
    for _ in range(3):
        h = jnp.tanh(h @ w + x)
    return h, h.sum()


def loss_with(wrap: Any) -> Any:
    def loss(w: Any, xs: Any) -> Any:
        h, sums = jax.lax.scan(wrap(lambda h, x: deep_cell(h, x, w)), jnp.zeros((64, 128)), xs)  # scan
        return (h**2).sum() + sums.mean()

    return loss


def stacked_bytes(function: Any, *args: Any) -> int:
    """What the forward scan of a gradient stacks for the backward one, without the sums that the user stacks."""
    scan = next(eqn for eqn in jax.make_jaxpr(function)(*args).eqns if eqn.primitive.name == "scan")
    shapes = [var.aval.shape for var in scan.outvars]
    return sum(4 * math.prod(shape) for shape in shapes if shape[:1] == (3000,) and len(shape) > 1)


ARGS = floats(128, 128), floats(3000, 64, 128)


def test_what_the_gradient_of_a_scan_keeps_is_found() -> None:
    (finding,) = kept(jax.grad(loss_with(lambda it: it)), *ARGS, memory_limit=1 << 50)
    assert (finding.severity, finding.line) == ("medium", marked(loss_with, "scan"))
    assert finding.figures["length"] == 3000 and "jax.checkpoint" in finding.advice
    assert finding.figures["bytes"] == stacked_bytes(jax.grad(loss_with(lambda it: it)), *ARGS)
    assert 0 < int(finding.figures["saved_bytes"]) < int(finding.figures["bytes"])


def test_a_checkpointed_scan_and_one_that_keeps_little_are_not() -> None:
    assert kept(jax.grad(loss_with(jax.checkpoint)), *ARGS, memory_limit=1 << 50) == []
    assert kept(jax.grad(loss_with(lambda it: it)), floats(128, 128), floats(300, 64, 128), memory_limit=1 << 50) == []
    assert kept(loss_with(lambda it: it), *ARGS, memory_limit=1 << 50) == []


def small(w: Any, xs: Any) -> Any:
    return jnp.sum(jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros(512), xs)[0])


@pytest.mark.parametrize(("limit", "count"), [(8 * MIB, 1), (64 * MIB, 0)])
def test_little_counts_where_there_is_little_memory(limit: int, count: int) -> None:
    assert len(kept(jax.grad(small), floats(512, 512), floats(2000, 512), memory_limit=limit)) == count


def mlp(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jax.nn.relu(x @ w)
    return (x**2).mean()


def recurrent(w: Any, xs: Any) -> Any:
    step: Any = lambda h, x: 2 * (jnp.tanh(h @ w + x),)
    h, sums = jax.lax.scan(step, jnp.zeros((64, 128)), xs)
    return (h**2).sum() + sums.mean()


def adam_step(weights: Any, state: Any, x: Any) -> Any:
    loss, slope = jax.value_and_grad(mlp)(weights, x)
    updates, state = optax.adam(1e-3).update(slope, state)
    return optax.apply_updates(weights, updates), state, loss


WEIGHTS = [floats(256, 256)] * 8
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "pairwise": (jax.jit(lambda x: ((x[:, None] - x[None]) ** 2).sum(-1)), (floats(500, 30),)),
    "mlp": (jax.jit(jax.grad(mlp)), (WEIGHTS, floats(2048, 256))),
    "recurrent": (jax.jit(jax.grad(recurrent)), (floats(128, 128), floats(100, 64, 128))),
    "adam": (jax.jit(adam_step, donate_argnums=(0, 1)),
        (WEIGHTS, jax.eval_shape(optax.adam(1e-3).init, WEIGHTS), floats(2048, 256))),
    "cache": (jax.jit(lambda cache, x: jax.lax.dynamic_update_slice(cache, x, (5, 0)), donate_argnums=0),
        (floats(100000, 64), floats(1, 64))),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_peak_is_near_xla_s(name: str) -> None:
    function, args = PROGRAMS[name]
    estimate = int(partax.doctor(function, *args).figures["peak_bytes"])
    measured = int(partax.doctor(function, *args, compile=True).figures["peak_bytes"])
    assert measured / 1.5 < estimate < 1.5 * measured
