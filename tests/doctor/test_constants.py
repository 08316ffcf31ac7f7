"""Guards the promise that the doctor names arrays that a program has captured, and what XLA evaluates of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Generator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examining import found_by, marked

from older_jax import IS_OLDER
from partax import filter_jit
from partax._doctor.constants import find
from partax._doctor.finding import Finding

found = found_by(find)

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


def test_arrays_are_counted_together_from_a_mebibyte_on() -> None:
    # 0.6 MiB each: one is too little, two are enough, and each is a finding of its own.
    first, second = numbers(157_000), numbers(157_001)
    assert found(lambda x: x * first.sum() + (x * first).sum(), 1.0 * jnp.ones(())) == []
    findings = found(lambda x: (x * first).sum() + (x * second).sum(), jnp.ones(()))
    assert [(it.path, it.figures["bytes"]) for it in findings] == [("second", 628_004), ("first", 628_000)]


def test_a_captured_model_is_one_finding() -> None:
    model = eqx.nn.MLP(512, 512, 512, 3, key=jax.random.key(0))

    def predict(x: Any) -> Any:
        return model(x)  # here

    (finding,) = found(predict, jnp.ones(512))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array)))
    assert finding.figures == {"bytes": size, "arrays": 8}
    assert (finding.path, finding.line) == ("model", marked(predict))
    assert found(lambda model, x: model(x), model, jnp.ones(512)) == []


@pytest.mark.parametrize("hoisted", [False, True])
@pytest.mark.parametrize("inside", ["jit", "scan", "while", "cond", "checkpoint", "custom_jvp", "custom_vjp", "grad"])
def test_the_line_is_that_of_the_first_use_in_an_inner_program(inside: str, hoisted: bool) -> None:
    data = jnp.asarray(numbers(MEBIBYTE))

    def used(y: Any) -> Any:
        return y * data.sum() + (y * data)[0]  # here

    def call(x: Any) -> Any:
        if inside == "scan":
            return jax.lax.scan(lambda c, _: (used(c), None), x, None, length=3)[0]
        if inside == "while":
            return jax.lax.while_loop(lambda c: c < 9, used, x)
        if inside == "cond":
            return jax.lax.cond(x > 0, used, lambda y: y, x)
        if inside == "custom_jvp":
            function = jax.custom_jvp(used)
            function.defjvp(lambda primals, tangents: (used(*primals), tangents[0]))
            return function(x)
        if inside == "custom_vjp":
            function = jax.custom_vjp(used)
            function.defvjp(lambda y: (used(y), None), lambda _, slope: (slope,))
            return function(x)
        return {"jit": jax.jit, "checkpoint": jax.checkpoint, "grad": jax.grad}[inside](used)(x)

    with _simplified_constants(hoisted):
        findings = found(call, jnp.float32(2))
    (finding,) = [it for it in findings if "bytes" in it.figures]
    assert (finding.file, finding.line, finding.path) == (__file__, marked(used), "data")
    assert finding.figures == {"bytes": 4 * MEBIBYTE, "arrays": 1}
    # https://github.com/jax-ml/jax/pull/36974: with this flag an array is a hidden argument, and compiled into nothing.
    hoisted = hoisted and not IS_OLDER
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


def test_an_array_made_while_tracing_has_a_line_and_no_name() -> None:
    def scaled(x: Any) -> Any:
        made = np.ones(MEBIBYTE, np.float32)
        return x * made  # here

    (finding,) = found(scaled, jnp.float32(2))
    assert (finding.path, finding.line) == ("", marked(scaled))
    assert finding.message.startswith("the program has captured float32[1048576] (4 MiB) of no variable")


def test_severity_follows_bytes() -> None:
    # 64 MiB, where compiling takes a second more.
    below, above = (np.zeros(count, np.int8) for count in ((64 << 20) - 1, 64 << 20))
    assert [it.severity for it in found(lambda x: x + below, jnp.int8(2))] == ["medium"]
    assert [it.severity for it in found(lambda x: x + above, jnp.int8(2))] == ["high"]


def folding(function: Callable[..., Any], *args: Any) -> list[Finding]:
    return [it for it in found(function, *args) if "folding_seconds" in it.figures]


@pytest.mark.parametrize(("count", "is_found"), [(2_000, False), (8_000, True)])
def test_a_sort_of_a_captured_array_is_evaluated_slowly(count: int, is_found: bool) -> None:
    # Measured: 2,000 compile in 0.5 s, 4,000 in 0.8 s, 10,000 in 5.8 s.
    data = jnp.asarray(numbers(count))

    def ranked(x: Any) -> Any:
        return x * jnp.sort(data)  # here

    findings = folding(ranked, jnp.float32(2))
    assert len(findings) == is_found
    for finding in findings:
        assert (finding.file, finding.line, finding.kind) == (__file__, marked(ranked), "constant")
        assert finding.figures["operations"] == 1
        assert finding.figures["folding_seconds"] == pytest.approx(count * np.log2(count) * 25e-6, abs=0.01)
        assert "`sort` of float32[8000] depends on no argument" in finding.message


@pytest.mark.parametrize(("count", "is_found"), [(100, False), (400, True)])
def test_windows_over_ones_are_evaluated_slowly(count: int, is_found: bool) -> None:
    """https://github.com/google-deepmind/dm-haiku/issues/539: an average pool with SAME padding, 19 s."""

    def pooled(x: Any) -> Any:
        ones = jnp.ones((count, count))
        counts = jax.lax.reduce_window(ones, 0.0, jax.lax.add, (3, 3), (1, 1), "SAME")  # here
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, (3, 3), (1, 1), "SAME") / counts

    findings = folding(pooled, jnp.ones((count, count)))
    assert len(findings) == is_found
    for finding in findings:
        assert finding.line == marked(pooled)
        assert finding.figures["folding_seconds"] == pytest.approx(count * count * 9 * 4e-6, abs=0.01)


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

    def filled() -> Any:
        """https://github.com/jax-ml/jax/issues/12789: today's XLA compiles it in 0.1 s."""
        return jnp.ones((500, 500, 500)).at[100, 100, 100].set(2)

    assert found(filled) == []
    signal = jnp.asarray(numbers(8_000))
    assert found(lambda x: x * jnp.sort(jnp.fft.fft(signal).real), jnp.float32(2)) == []


def test_a_program_that_is_called_again_with_an_argument_is_read_anew() -> None:
    data = jnp.asarray(numbers(8_000))
    ranked = jax.jit(lambda it: jnp.sort(it) * 2)

    def twice(x: Any) -> Any:
        first = ranked(data)
        return first + ranked(x)

    (finding,) = folding(twice, jnp.ones(8_000))
    assert finding.figures["operations"] == 2  # the sort and the product of the first call, and none of the second


class Static:
    """An object that is no tree."""

    def __init__(self) -> None:
        self.table = jnp.asarray(numbers(MEBIBYTE // 4))
        self.inner: Any = None


class Holds(eqx.Module):
    weight: jax.Array
    static: Static = eqx.field(static=True)

    def __call__(self, i: Any) -> Any:
        return self.weight * self.static.table[i]


class Runs:
    def __init__(self) -> None:
        self.parts = {"static": [Static()]}

    def run(self, i: Any) -> Any:
        return self.parts["static"][0].table[i]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(eq=False)
class Scaler:
    data: jax.Array

    def scaled(self, x: Any) -> Any:
        return x * self.data


def multiplied(data: Any, x: Any) -> Any:
    return x * data


@pytest.mark.filterwarnings("ignore:.*is an array in a static")
def test_what_holds_an_array_has_its_path() -> None:
    static, index = Static(), jnp.int32(0)
    outer = Static()
    outer.table, outer.inner = jnp.zeros(()), static
    static.inner = outer  # a cycle
    model = Holds(jnp.ones(()), static)
    given, held = TABLE.copy(), [jnp.asarray(TABLE)]
    bound = functools.partial(multiplied, given)
    cases: list[tuple[str, str, Any, tuple[Any, ...]]] = [
        ("global", "TABLE", lambda x: x * TABLE, (jnp.float32(2),)),
        ("attribute", "self.data", jax.jit(Scaler(jnp.asarray(TABLE)).scaled), (jnp.float32(2),)),
        ("bound argument", "argument 0", jax.jit(lambda x: bound(x)), (jnp.float32(2),)),
        ("bound argument", "data", jax.jit(functools.partial(lambda x, data: x * data, data=given)), (jnp.float32(2),)),
        ("default", "table", jax.jit(lambda i, table=given: jnp.asarray(table)[i]), (index,)),
        ("default", "rows[0]", filter_jit(lambda i, *, rows=held: rows[0][i]), (index,)),
        ("static argument", "cfg.table", filter_jit(lambda cfg, i: cfg.table[i]), (static, index)),
        ("static argument", "model.static.table", filter_jit(lambda model, i: model(i)), (model, index)),
        ("closure cell", "outer.inner.table", filter_jit(lambda i: outer.inner.table[i]), (index,)),
        ("attribute", "self.parts['static'][0].table", filter_jit(Runs().run), (index,)),
    ]
    for kind, path, function, args in cases:
        (finding,) = found(function, *args)
        assert finding.path == path
        assert finding.message.startswith(f"{kind} `{path}` holds float32[262144] (1 MiB)")
