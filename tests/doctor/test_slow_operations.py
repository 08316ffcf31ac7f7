"""Guards the promise that the doctor names operations that take a backend long, from the number on at which they do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from examining import floats, found_by, marked

from partax._doctor.slow_operations import SLOW_OPERATIONS, find

found = found_by(find)

X = jnp.ones((64, 64))
THREADS = "https://github.com/jax-ml/jax/issues/"


def test_each_row_names_a_thread() -> None:
    assert len({row.thread for row in SLOW_OPERATIONS}) == len(SLOW_OPERATIONS)
    assert all(row.thread.removeprefix(THREADS).isdigit() for row in SLOW_OPERATIONS)


@pytest.mark.parametrize(("count", "severity"), [(7, ""), (8, "medium"), (49, "medium"), (50, "high")])
def test_scatters_that_add(count: int, severity: str) -> None:
    """https://github.com/jax-ml/jax/issues/39483: eight of them and a sum, 75 s on a GPU."""

    def summed(x: Any, ix: Any) -> Any:
        for i in range(count):
            x = x.at[ix + i % 8].add(x[0] * (1.0 + i * 1e-4))  # here
        return jnp.sum(x)

    findings = found(summed, X, jnp.int32(3))
    assert [it.severity for it in findings] == ([severity] if severity else [])
    for finding in findings:
        assert (finding.kind, finding.file, finding.line) == ("slow-op", __file__, marked(summed))
        assert (finding.figures["times"], finding.figures["thread"]) == (count, THREADS + "39483")


def test_scatters_into_different_arrays_are_no_chain() -> None:
    def apart(x: Any, ix: Any) -> Any:
        return [x.at[ix + i].add(1.0) for i in range(20)]

    assert found(apart, X, jnp.int32(3)) == []


def test_a_chain_goes_through_calls() -> None:
    def add(x: Any, ix: Any) -> Any:
        return x.at[ix].add(2.0)  # here

    called = jax.jit(add)

    def summed(x: Any, ix: Any) -> Any:
        for i in range(12):
            x = called(x, ix + i)
        return x

    (finding,) = found(summed, X, jnp.int32(3))
    assert finding.figures["times"] == 12
    assert finding.line == marked(add)


def filled(count: int) -> Any:
    """https://github.com/jax-ml/jax/issues/2242: a factorisation in a Python loop, 29 s."""

    def fill(x: Any) -> Any:
        for i in range(count):
            x = x.at[i % 60, i // 60].set(1.0 * i)  # here
        return x

    return fill, (X,)


def ladder(count: int) -> Any:
    def climb(x: Any, kind: Any) -> Any:
        chosen = x
        for i in range(count):
            chosen = jnp.where(kind == i, x * i, chosen)  # here
        return chosen

    return climb, (jnp.ones(100), jnp.zeros(100, int))


def one_by_one(decompose: Any, size: int = 4) -> Any:
    """https://github.com/jax-ml/jax/issues/20326: a solve for each of many small matrices, in nested loops."""

    def make(count: int) -> Any:
        def each(matrices: Any) -> Any:
            return [decompose(matrices[i]) for i in range(count)]  # here

        return each, (floats(count, size, size),)

    return make


@pytest.mark.parametrize(
    ("make", "fewest"),
    [
        (filled, 64),
        (ladder, 200),
        (one_by_one(jnp.linalg.cholesky), 40),
        (one_by_one(jnp.linalg.eigvalsh), 40),
        (one_by_one(jnp.linalg.svdvals), 40),
    ],
)
def test_many_of_them_are_found_from_a_number_on(make: Any, fewest: int) -> None:
    function, args = make(fewest)
    assert [(it.figures["times"], it.line) for it in found(function, *args)] == [(fewest, marked(function))]
    function, args = make(fewest - 1)
    assert found(function, *args) == []


def test_a_batch_of_matrices_and_large_ones_are_none() -> None:
    assert found(lambda it: jax.vmap(jnp.linalg.cholesky)(it), floats(40, 4, 4)) == []
    function, args = one_by_one(jnp.linalg.cholesky, 257)(40)
    assert found(function, *args) == []


def test_a_solve_counts_what_is_compiled_of_it() -> None:
    def each(a: Any, b: Any) -> Any:
        return [jnp.linalg.solve(a[i], b[i]) for i in range(20)]

    (finding,) = found(each, floats(20, 4, 4), floats(20, 4, 4))
    # One factorisation and two triangular solves each; what their gradients would need is not compiled.
    assert finding.figures["times"] == 60


@pytest.mark.parametrize(
    ("kernel", "stride", "is_found"), [(32, 16, True), (16, 8, True), (8, 8, False), (16, 4, False)]
)
def test_transposed_convolutions(kernel: int, stride: int, is_found: bool) -> None:
    """https://github.com/jax-ml/jax/issues/17464."""

    def upsample(x: Any, weights: Any) -> Any:
        return jax.lax.conv_transpose(x, weights, strides=(stride, stride), padding="SAME")  # here

    findings = found(upsample, floats(1, 8, 8, 16), floats(kernel, kernel, 16, 8))
    assert [(it.severity, it.line) for it in findings] == ([("low", marked(upsample))] if is_found else [])


@pytest.mark.parametrize("count", [(1 << 20) - 1, 1 << 20])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64", "float64"])
def test_sorts_of_long_integers(dtype: str, count: int) -> None:
    """https://github.com/jax-ml/jax/issues/34912."""

    def order(x: Any) -> Any:
        return jnp.argsort(x)  # here

    with jax.enable_x64(True):
        findings = found(order, floats(count, dtype=dtype))
    is_found = count == 1 << 20 and dtype in ("int64", "uint64")
    assert [(it.severity, it.line) for it in findings] == ([("low", marked(order))] if is_found else [])


@pytest.mark.parametrize(("count", "severity"), [(47, ""), (48, "medium"), (255, "medium"), (256, "high")])
def test_wide_switches(count: int, severity: str) -> None:
    """https://github.com/jax-ml/jax/issues/4453."""
    branches = [lambda x, i=i: jnp.sin(x) + i for i in range(count)]

    def chosen(i: Any, x: Any) -> Any:
        return jax.lax.switch(i, branches, x)  # here

    findings = found(chosen, jnp.int32(1), jnp.float32(2))
    assert [it.severity for it in findings] == ([severity] if severity else [])
    for finding in findings:
        assert (finding.kind, finding.file, finding.line) == ("switch", __file__, marked(chosen))
        # A sine and a sum each.
        assert (finding.figures["branches"], finding.figures["equations"]) == (count, 2 * count)
