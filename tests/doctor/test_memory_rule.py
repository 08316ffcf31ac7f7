"""Guards the promise that programs that need much memory, and scans that autodiff keeps, are found by line, and that
the estimate of the live bytes is near what XLA measures.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from examining import findings_of, floats, marked

import partax

UNLIMITED = 1 << 50


def attend(x: Any) -> Any:
    scores = x @ x.T  # scores
    return jnp.cumsum(scores, axis=1).sum(1)


def xla_bytes(function: Any, *args: Any) -> int:
    """XLA's figure, asked for without the doctor."""
    stats: Any = jax.jit(function).lower(*args).compile().memory_analysis()
    return stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes


def test_a_program_over_the_limit_is_found_with_the_line_of_its_largest_array() -> None:
    (finding,) = findings_of("memory", jax.jit(attend), floats(1000, 64), memory_limit=1 << 20)
    assert (finding.severity, finding.line) == ("high", marked(attend, "scores"))
    assert finding.figures["largest_bytes"] == 1000 * 1000 * 4 and "an estimate" in finding.message
    assert "float32[1000,1000]" in finding.message and "in blocks" in finding.advice


@pytest.mark.parametrize(("share", "severities"), [(1.01, ["high"]), (0.81, ["medium"]), (0.79, [])])
def test_a_compiled_program_has_the_figure_of_xla(share: float, severities: list[str]) -> None:
    peak = xla_bytes(attend, floats(1000, 64))
    findings = findings_of("memory", attend, floats(1000, 64), memory_limit=int(peak / share), compile=True)
    assert [finding.severity for finding in findings] == severities
    for finding in findings:
        assert finding.figures["peak_bytes"] == peak and "XLA's figure" in finding.message


def test_what_the_compiler_fuses_away_is_not_counted() -> None:
    def squares(x: Any) -> Any:
        return ((x[:, None] - x[None]) ** 2).sum((1, 2))

    assert xla_bytes(squares, floats(5_000, 30)) < 1 << 21
    assert findings_of("memory", squares, floats(5_000, 30), memory_limit=1 << 21) == []


def deep_cell(h: Any, x: Any, w: Any) -> Any:
    for _ in range(3):
        h = jnp.tanh(h @ w + x)
    return h, h.sum()


def loss_with(wrap: Any) -> Any:
    def loss(w: Any, xs: Any) -> Any:
        h, sums = jax.lax.scan(wrap(lambda h, x: deep_cell(h, x, w)), jnp.zeros((64, 128)), xs)  # scan
        return (h**2).sum() + sums.mean()

    return loss


def mlp(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jax.nn.relu(x @ w)
    return (x**2).mean()


def test_the_estimate_is_near_the_figure_of_xla() -> None:
    function, args = jax.grad(mlp), ([floats(256, 256)] * 8, floats(2048, 256))
    estimate, measured = int(partax.doctor(function, *args).figures["peak_bytes"]), xla_bytes(function, *args)
    assert measured / 1.5 < estimate < 1.5 * measured


def checkpoints(function: Any, length: int = 3000) -> list[partax.reports.Finding]:
    return findings_of("checkpoint", function, floats(128, 128), floats(length, 64, 128), memory_limit=UNLIMITED)


def test_what_the_gradient_of_a_scan_keeps_is_found() -> None:
    function = jax.grad(loss_with(lambda body: body))
    (finding,) = checkpoints(function)
    assert (finding.severity, finding.line) == ("medium", marked(loss_with, "scan"))
    assert finding.figures["length"] == 3000 and "jax.checkpoint" in finding.advice
    # What the forward scan stacks for the backward one, without the sums that the user stacks.
    equations = jax.make_jaxpr(function)(floats(128, 128), floats(3000, 64, 128)).eqns
    forward = next(eqn for eqn in equations if eqn.primitive.name == "scan")
    shapes = [var.aval.shape for var in forward.outvars]
    kept = sum(4 * math.prod(shape) for shape in shapes if shape[:1] == (3000,) and len(shape) > 1)
    assert finding.figures["bytes"] == kept > int(finding.figures["saved_bytes"]) > 0


def test_a_checkpointed_scan_and_one_that_keeps_little_are_not() -> None:
    assert checkpoints(jax.grad(loss_with(jax.checkpoint))) == []
    assert checkpoints(jax.grad(loss_with(lambda body: body)), length=300) == []
    assert checkpoints(loss_with(lambda body: body)) == []
