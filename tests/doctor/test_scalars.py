"""Guards the promise that a loop over many scalars is found, with its line and how many there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from examining import floats, found_by, marked

import partax
from partax._doctor.control_flow import find_scalars

found = found_by(find_scalars)


def filter_of(count: int, shape: tuple[int, ...] = ()) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    names = [f"node_{i}" for i in range(count)]

    def loss(rates: Any, xs: Any) -> Any:
        def step(means: Any, x: Any) -> Any:
            means = {it: means[it] + rates[it] * jnp.tanh(x - means[it]) for it in names}
            return means, sum(means.values())

        return jnp.sum(jax.lax.scan(step, dict.fromkeys(names, jnp.zeros(shape)), xs)[1])  # scan

    return loss, (dict.fromkeys(names, floats(*shape)), floats(100, *shape))


@pytest.mark.parametrize("jit", [jax.jit, partax.filter_jit, lambda f: f])
@pytest.mark.parametrize("derive", [lambda f: f, jax.grad, jax.value_and_grad])
def test_a_scan_over_sixty_scalars_is_one_finding(jit: Any, derive: Any) -> None:
    loss, args = filter_of(60)
    (finding,) = found(jit(derive(loss)), *args)
    assert (finding.kind, finding.severity) == ("scalar", "medium")
    assert (finding.file, finding.line) == (__file__, marked(filter_of, "scan"))
    assert finding.figures["scalars"] >= 121 and finding.figures["times"] == 100
    assert "Stack them" in finding.advice


def test_a_while_loop_is_a_loop_too() -> None:
    def run(xs: Any) -> Any:
        return jax.lax.while_loop(lambda xs: xs[0] < 9, lambda xs: [jnp.sin(x) * x + x / 2 for x in xs], xs)

    (finding,) = found(run, [floats()] * 40)
    assert finding.figures["scalars"] == 40


@pytest.mark.parametrize(("count", "shape"), [(8, ()), (60, (3,)), (60, (1,))])
def test_few_scalars_and_vectors_are_as_they_should_be(count: int, shape: tuple[int, ...]) -> None:
    loss, args = filter_of(count, shape)
    assert found(jax.grad(loss), *args) == []


def test_scalars_without_a_loop_cost_nothing() -> None:
    assert found(lambda xs: [jnp.tanh(x) * x + x / 2 for x in xs], [floats()] * 100) == []
