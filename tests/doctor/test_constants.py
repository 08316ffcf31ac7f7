"""Guards the promise that the doctor names arrays that a program has captured, and what XLA evaluates of them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examining import findings_of, marked

from partax import filter_jit

MEBIBYTE = 1 << 20
TABLE = np.arange(MEBIBYTE // 4, dtype=np.float32)


def numbers(count: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).random(count, np.float32))


@pytest.mark.parametrize("jit", [jax.jit, filter_jit, lambda f: f], ids=["jax", "partax", "none"])
def test_a_captured_array_has_its_variable_and_its_line(jit: Any) -> None:
    data = numbers(MEBIBYTE // 4)

    def scaled(x: Any) -> Any:
        y = x + 1
        return y * data  # here

    (finding,) = findings_of("constant", jit(scaled), jnp.float32(2))
    assert (finding.severity, finding.path) == ("medium", "data")
    assert (finding.file, finding.line) == (__file__, marked(scaled))
    assert finding.figures == {"bytes": MEBIBYTE, "arrays": 1}
    assert "closure cell" in finding.message and "argument of `scaled`" in finding.advice
    assert findings_of("constant", jit(lambda x, data: x * data), jnp.float32(2), data) == []
    smaller = data[1:]
    assert findings_of("constant", jit(lambda x: x * smaller), jnp.float32(2)) == []


def test_a_captured_model_is_one_finding() -> None:
    model = eqx.nn.MLP(512, 512, 512, 3, key=jax.random.key(0))

    def predict(x: Any) -> Any:
        return model(x)  # here

    (finding,) = findings_of("constant", predict, jnp.ones(512))
    assert (finding.path, finding.line, finding.figures["arrays"]) == ("model", marked(predict), 8)
    assert findings_of("constant", lambda model, x: model(x), model, jnp.ones(512)) == []


class Runner:
    def __init__(self) -> None:
        self.parts = {"table": [jnp.asarray(TABLE)]}

    def run(self, i: Any) -> Any:
        return self.parts["table"][0][i]


@pytest.mark.filterwarnings("ignore:.*is an array in a static")
def test_what_holds_an_array_is_named() -> None:
    (of_module,) = findings_of("constant", lambda x: x * TABLE, jnp.float32(2))
    assert of_module.path == "TABLE" and "global" in of_module.message
    other = TABLE.copy()
    default = jax.jit(lambda i, table=other: jnp.asarray(table)[i])
    (of_default,) = findings_of("constant", default, jnp.int32(0))
    assert of_default.path == "table" and "default" in of_default.message
    (of_object,) = findings_of("constant", filter_jit(Runner().run), jnp.int32(0))
    assert of_object.path == "self.parts['table'][0]" and "attribute" in of_object.message


def test_a_sort_of_a_captured_array_is_evaluated_by_the_compiler() -> None:
    data = numbers(8_000)

    def rank(x: Any) -> Any:
        return x * jnp.sort(data)  # here

    (finding,) = findings_of("constant", rank, jnp.float32(2))
    assert (finding.file, finding.line) == (__file__, marked(rank)) and "`sort`" in finding.message
    assert finding.figures["folding_seconds"] == pytest.approx(8_000 * np.log2(8_000) * 25e-6, abs=0.01)
    assert findings_of("constant", lambda x, data: x * jnp.sort(data), jnp.float32(2), data) == []


def test_a_chain_is_followed_through_calls_until_an_argument_is_read() -> None:
    data = numbers(3_000_000)

    @jax.jit
    def shifted(x: Any) -> Any:
        return jnp.sin(x) - x @ x

    def chain(x: Any) -> Any:
        z = jnp.cumsum(shifted(data))  # here
        return jnp.cumsum(z * x)

    findings = findings_of("constant", chain, jnp.float32(2))
    (finding,) = [finding for finding in findings if "folding_seconds" in finding.figures]
    assert (finding.line, finding.severity) == (marked(chain), "high")


def test_what_xla_does_not_evaluate_is_not_a_finding() -> None:
    def computed(x: Any) -> Any:
        count = jnp.arange(10_000_000, dtype=jnp.float32)
        ones = jnp.ones(10_000_000)
        return x * (jnp.cumsum(count) + jnp.sort(jnp.sin(count)) + ones.at[3].set(2.0) + jnp.cumsum(ones))

    assert findings_of("constant", computed, jnp.float32(2)) == []
