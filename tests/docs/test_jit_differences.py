"""Guards the tables of differences between `filter_jit` and `jax.jit`, `partax.nnx.jit` and `flax.nnx.jit`, and
`partax.equinox` and Equinox on their pages: each row is code that runs with both."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax.equinox
from conftest import TraceCounter
from odd_values import Unhashable
from page_tables import DOCS, read_rows


class Model(eqx.Module):
    weight: jax.Array
    scale: Any = eqx.field(static=True, default=1)


class Traces(TraceCounter):
    def __call__(self) -> None:
        self.tick()


def assert_outcome(cells: str, expected: str, **names: Any) -> None:
    """Runs the code of a row: all but the last piece in backquotes are statements, the last one is an expression."""
    *statements, expression = re.findall(r"`([^`]+)`", cells)
    names |= {"jax": jax, "jnp": jnp, "x": jnp.arange(2.0), "traces": Traces(), "partax": partax}
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    names |= {"sharding": sharding, "by_path": partax.by_path}
    try:
        for statement in statements:
            exec(statement, names)
        outcome = f"`{eval(expression, names)!r}`"
    except Exception as error:
        outcome = f"`{type(error).__name__}`"
        if ": " in expected:
            outcome += f": {' '.join(str(error).split())}"
    assert outcome.startswith(expected.removesuffix("...")) and ("..." in expected or outcome == expected), cells


def rows(page: str, name: str) -> Any:
    return pytest.mark.parametrize(("code", "theirs", "ours"), read_rows(DOCS / "coming_from" / page, name))


@rows("jax_jit.md", "differences")
def test_what_filter_jit_does_otherwise_than_jax_jit(code: str, theirs: str, ours: str) -> None:
    mlp = eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0))
    for jit, expected in ((jax.jit, theirs), (partax.filter_jit, ours)):
        assert_outcome(code, expected, jit=jit, mlp=mlp)


@rows("flax_nnx.md", "differences")
def test_what_our_nnx_jit_does_otherwise_than_that_of_flax(code: str, theirs: str, ours: str) -> None:
    nnx = pytest.importorskip("flax.nnx")
    import partax.nnx

    class Holder(nnx.Module):
        def __init__(self, **attributes: Any) -> None:
            for name, value in attributes.items():
                setattr(self, name, value)

    for jit, expected in ((nnx.jit, theirs), (partax.nnx.jit, ours)):
        net = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
        assert_outcome(code, expected, jit=jit, nnx=nnx, net=net, Holder=Holder)


@pytest.mark.filterwarnings("ignore")
@rows("equinox.md", "equinox")
def test_what_our_functions_do_otherwise_than_those_of_equinox(code: str, theirs: str, ours: str) -> None:
    for library, expected in ((eqx, theirs), (partax.equinox, ours)):
        assert_outcome(code, expected, eqx=library, np=np, Model=Model, Unhashable=Unhashable)
