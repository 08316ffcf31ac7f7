"""Guards the promise that the doctor names arrays that a program has captured, and what XLA evaluates of them."""

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examining import findings_of_kind, marked

from partax import filter_jit
from partax.reports import Finding

found = findings_of_kind("constant")

MEBIBYTE = 1 << 20
TABLE = np.arange(MEBIBYTE // 4, dtype=np.float32)


def numbers(count: int) -> np.ndarray:
    return np.random.default_rng(0).random(count, np.float32)


@pytest.mark.parametrize(("count", "is_found"), [(MEBIBYTE // 4 - 1, False), (MEBIBYTE // 4, True)])
@pytest.mark.parametrize("jit", [jax.jit, filter_jit, lambda f: f])
def test_a_mebibyte_in_a_closure_cell_is_found(jit: Any, count: int, is_found: bool) -> None:
    data = jnp.asarray(numbers(count))

    def scaled(x: Any) -> Any:
        y = x + 1
        return y * data  # here

    findings = found(jit(scaled), jnp.float32(2))
    assert len(findings) == is_found
    for finding in findings:
        assert (finding.kind, finding.severity, finding.path) == ("constant", "medium", "data")
        assert (finding.file, finding.line) == (__file__, marked(scaled))
        assert finding.figures == {"bytes": 4 * count, "arrays": 1}
        assert finding.message.startswith("closure cell `data` holds float32[262144] (1 MiB)")
        assert "`data` as an argument of `scaled`" in finding.advice


def test_a_captured_model_is_one_finding() -> None:
    model = eqx.nn.MLP(512, 512, 512, 3, key=jax.random.key(0))

    def predict(x: Any) -> Any:
        return model(x)  # here

    (finding,) = found(predict, jnp.ones(512))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array)))
    assert finding.figures == {"bytes": size, "arrays": 8}
    assert (finding.path, finding.line) == ("model", marked(predict))
    assert found(lambda model, x: model(x), model, jnp.ones(512)) == []


INSIDE: dict[str, Callable[[Any], Any]] = {
    "jit": jax.jit,
    "scan": lambda used: lambda x: jax.lax.scan(lambda c, _: (used(c), None), x, None, length=3)[0],
    "cond": lambda used: lambda x: jax.lax.cond(x > 0, used, lambda y: y, x),
}


@pytest.mark.parametrize("hoisted", [False, True])
@pytest.mark.parametrize("inside", INSIDE)
def test_the_line_is_that_of_the_first_use_in_an_inner_program(inside: str, hoisted: bool) -> None:
    data = jnp.asarray(numbers(MEBIBYTE))

    def used(y: Any) -> Any:
        return y * data.sum() + (y * data)[0]  # here

    function = INSIDE[inside](used)
    with _simplified_constants(hoisted):
        findings = found(lambda x: function(x), jnp.float32(2))
    (finding,) = [it for it in findings if "bytes" in it.figures]
    assert (finding.file, finding.line, finding.path) == (__file__, marked(used), "data")
    assert finding.figures == {"bytes": 4 * MEBIBYTE, "arrays": 1}
    # https://github.com/jax-ml/jax/pull/36974: with this flag an array is a hidden argument, and compiled into nothing.
    assert finding.severity == ("low" if hoisted else "medium")
    assert ("hidden argument" in finding.message) is hoisted


@contextlib.contextmanager
def _simplified_constants(enabled: bool) -> Generator[None]:
    before: bool = getattr(jax.config, "jax_use_simplified_jaxpr_constants")  # noqa: B009
    jax.config.update("jax_use_simplified_jaxpr_constants", enabled)
    try:
        yield
    finally:
        jax.config.update("jax_use_simplified_jaxpr_constants", before)


def folding(function: Callable[..., Any], *args: Any) -> list[Finding]:
    return [it for it in found(function, *args) if "folding_seconds" in it.figures]


def ranked(count: int) -> tuple[Any, Any, float, str]:
    data = jnp.asarray(numbers(count))

    def rank(x: Any) -> Any:
        return x * jnp.sort(data)  # here

    return rank, jnp.float32(2), count * np.log2(count) * 25e-6, f"`sort` of float32[{count}] depends on no argument"


def pooled(count: int) -> tuple[Any, Any, float, str]:
    """https://github.com/google-deepmind/dm-haiku/issues/539: an average pool with SAME padding, 19 s."""

    def pool(x: Any) -> Any:
        ones = jnp.ones((count, count))
        counts = jax.lax.reduce_window(ones, 0.0, jax.lax.add, (3, 3), (1, 1), "SAME")  # here
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, (3, 3), (1, 1), "SAME") / counts

    return pool, jnp.ones((count, count)), count * count * 9 * 4e-6, "depends on no argument"


@pytest.mark.parametrize(("make", "below", "count"), [(ranked, 2_000, 8_000), (pooled, 100, 400)])
def test_what_depends_on_no_argument_is_evaluated_slowly(make: Any, below: int, count: int) -> None:
    function, x, _, _ = make(below)
    assert folding(function, x) == []
    function, x, seconds, text = make(count)
    (finding,) = folding(function, x)
    assert (finding.file, finding.line, finding.kind) == (__file__, marked(function), "constant")
    assert finding.figures["folding_seconds"] == pytest.approx(seconds, abs=0.01) and text in finding.message


def test_a_chain_is_followed_through_calls_until_an_argument_comes_in() -> None:
    data = jnp.asarray(numbers(3_000_000))

    @jax.jit
    def shifted(it: Any) -> Any:
        sines = jnp.sin(it)
        return sines - it @ it  # each line by itself is too little

    def chain(x: Any) -> Any:
        y = shifted(data)
        z = jnp.cumsum(y)  # here
        return jnp.cumsum(z * x)

    findings = folding(chain, jnp.float32(2))
    assert [it.line for it in findings] == [marked(chain)]
    assert findings[0].figures["folding_seconds"] == pytest.approx(3_000_000 * 29e-6, abs=0.01)
    assert findings[0].severity == "high"
    assert folding(lambda data, x: jnp.cumsum(data) * x, data, jnp.float32(2)) == []


def test_what_xla_does_not_evaluate_is_not_reported() -> None:
    def made(x: Any) -> Any:
        count = jnp.arange(10_000_000, dtype=jnp.float32)
        ones = jnp.ones(10_000_000)
        return x * (jnp.cumsum(count) + jnp.sort(jnp.sin(count)) + ones.at[3].set(2.0) + jnp.cumsum(ones))

    assert found(made, jnp.float32(2)) == []

    # https://github.com/jax-ml/jax/issues/12789: today's XLA compiles it in 0.1 s.
    assert found(lambda: jnp.ones((500, 500, 500)).at[100, 100, 100].set(2)) == []
    signal = jnp.asarray(numbers(8_000))
    assert found(lambda x: x * jnp.sort(jnp.fft.fft(signal).real), jnp.float32(2)) == []


class Runs:
    def __init__(self) -> None:
        self.parts = {"table": [jnp.asarray(TABLE)]}

    def run(self, i: Any) -> Any:
        return self.parts["table"][0][i]


@pytest.mark.filterwarnings("ignore:.*is an array in a static")
def test_what_holds_an_array_has_its_path() -> None:
    given, index = TABLE.copy(), jnp.int32(0)
    cases: list[tuple[str, str, Any, tuple[Any, ...]]] = [
        ("global", "TABLE", lambda x: x * TABLE, (jnp.float32(2),)),
        ("default", "table", jax.jit(lambda i, table=given: jnp.asarray(table)[i]), (index,)),
        ("attribute", "self.parts['table'][0]", filter_jit(Runs().run), (index,)),
    ]
    for kind, path, function, args in cases:
        (finding,) = found(function, *args)
        assert finding.path == path and finding.message.startswith(f"{kind} `{path}` holds float32[262144] (1 MiB)")
