"""`partax.jit` has the signature and the semantics of `jax.jit`, which is the reference of each test."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from conftest import TraceCounter

Jit = Callable[..., Any]
JITS = (jax.jit, partax.jit)


class Scaled:
    """An object that is static as a whole."""

    def __init__(self, by: int) -> None:
        self.by = by

    @functools.partial(partax.jit, static_argnums=0)
    def scale(self, x: Any) -> Any:
        return x * self.by


def total(x: Any, *more: Any, by: int = 2, **named: Any) -> Any:
    return {"sum": x.sum() * by + sum(len(value) for value in more), "count": len(named), "none": None, "x": x}


CALLS: dict[str, tuple[dict[str, Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "numbers": ({}, lambda x, y: (x * y, 2, 1.5, True), (2, 3.0), {}),
    "a dict of arrays and numbers": ({}, lambda d: d["a"] + d["b"], ({"a": 1, "b": np.ones(2, "f4")},), {}),
    "static by name": ({"static_argnames": "by"}, total, (jnp.ones(3),), {"by": 3}),
    "static by position": ({"static_argnums": 1}, lambda x, shape: x.reshape(shape), (jnp.ones(6), (2, 3)), {}),
    "static from the end": ({"static_argnums": -1}, lambda x, shape: x.reshape(shape), (jnp.ones(6), (3, 2)), {}),
    "static in *args": ({"static_argnums": (1, 2)}, total, (jnp.ones(3), "abc", "de"), {}),
    "static in **kwargs": ({"static_argnames": ("name",)}, total, (jnp.ones(3),), {"name": "abc"}),
    "a default that is left out": ({}, lambda x, n=2: jnp.zeros(n) + x, (1.0,), {}),
    "a static tree": ({"static_argnums": 0}, lambda f, x: f(x), (jax.tree_util.Partial(jnp.sin), 1.0), {}),
    "None": ({}, lambda x: (x, None), (None,), {}),
}


def outcome(jit: Jit, name: str) -> Any:
    options, fun, args, kwargs = CALLS[name]
    return jit(fun, **options)(*args, **kwargs)


@pytest.mark.parametrize("name", CALLS)
def test_a_call(name: str) -> None:
    expected, actual = (outcome(jit, name) for jit in JITS)
    assert jax.tree.structure(expected) == jax.tree.structure(actual)
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
        assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
        assert np.array_equal(a, b)


def test_numbers_are_traced_and_static_arguments_are_keys(traces: TraceCounter) -> None:
    def power(x: Any, n: int) -> Any:
        return traces.seen(x) ** n

    counts: list[int] = []
    for jit in JITS:
        f, before = jit(power, static_argnames="n"), traces.count
        for x, n in ((1.0, 2), (2.0, 2), (2.0, 3), (3.0, 2)):
            assert f(x, n) == x**n
        counts.append(traces.count - before)
    assert counts == [2, 2]


def test_a_method_with_a_static_self() -> None:
    assert [Scaled(by).scale(2.0) for by in (2, 3)] == [4, 6]


@pytest.mark.parametrize("option", [{"donate_argnums": 0}, {"donate_argnames": "x"}, {"donate_argnums": (0, 2)}])
def test_donation(option: dict[str, Any]) -> None:
    deleted: list[list[bool]] = []
    for jit in JITS:
        arrays = [jnp.arange(4.0) + i for i in range(3)]
        returned, *_ = jit(lambda x, *more: (x, *[y + 1 for y in more]), **option)(*arrays)
        assert not returned.is_deleted()
        deleted.append([x.is_deleted() for x in arrays])
    assert deleted[0] == deleted[1]


def test_a_result_shares_no_array_with_the_arguments() -> None:
    x = jnp.ones(3)
    assert partax.jit(lambda x: x)(x) is not x


WRONG: dict[str, Callable[[Jit], Any]] = {
    "a string": lambda jit: jit(lambda x: x)("a"),
    "a function in a dict": lambda jit: jit(lambda d: d["x"])({"x": 1.0, "f": len}),
    "a string as a result": lambda jit: jit(lambda x: {"x": x, "name": "a"})(1.0),
    "no function": lambda jit: jit(3),
    "a generator": lambda jit: jit(generate),
    "no such position": lambda jit: jit(lambda x: x, static_argnums=3),
    "no such name": lambda jit: jit(lambda x: x, donate_argnames="y"),
    "static and donated": lambda jit: jit(lambda x: x, static_argnums=0, donate_argnums=0),
}


def generate(x: Any) -> Any:
    yield x


@pytest.mark.parametrize("name", WRONG)
def test_what_jax_refuses_is_refused(name: str) -> None:
    with pytest.raises((TypeError, ValueError)) as expected:
        WRONG[name](jax.jit)
    with pytest.raises(expected.type):
        WRONG[name](partax.jit)


def test_advice_on_numbers_is_that_of_jax() -> None:
    for jit in JITS:
        with pytest.raises(jax.errors.TracerIntegerConversionError) as error:
            jit(lambda n: range(n))(3)
        assert not any("partax traces" in note for note in getattr(error.value, "__notes__", ()))


def test_stages_are_those_of_jax() -> None:
    f = partax.jit(lambda x, n: x * n, static_argnums=1)
    x = jnp.ones(3)
    assert np.array_equal(f.lower(x, 2).compile()(x), x * 2)
    assert np.array_equal(jax.export.export(f)(x, 2).call(x), x * 2)
    assert f.eval_shape(x, 2).shape == (3,)


def test_shardings_are_those_of_the_arguments_that_are_not_static() -> None:
    by = jax.sharding.NamedSharding(jax.make_mesh((1,), ("d",)), jax.sharding.PartitionSpec())
    for jit in JITS:
        f = jit(lambda n, x, y: x * n + y, static_argnums=0, in_shardings=(by, by), out_shardings=by)
        for result in (f(2, jnp.ones(2), 1.0), f.lower(2, jnp.ones(2), 1.0).compile()(jnp.ones(2), 1.0)):
            assert np.array_equal(result, [3, 3]) and result.sharding == by


def test_under_transformations() -> None:
    square = partax.jit(lambda x: x * x)
    assert jax.grad(square)(3.0) == 6
    assert np.array_equal(jax.vmap(square)(jnp.arange(3.0)), jnp.arange(3.0) ** 2)
    assert jax.jit(square)(3) == 9


def test_signature() -> None:
    accepted = {*inspect.signature(jax.jit).parameters} - {"device", "backend"}  # deprecated in jax
    assert accepted == {*inspect.signature(partax.jit).parameters}


def test_explain_report_and_bind() -> None:
    f = partax.jit(lambda x, y: x * y)
    assert f.bind(2.0)(3.0) == 6
    assert f.cache_info().traces == 1
    assert len(f.report().traces) == 1
