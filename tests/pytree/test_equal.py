"""Guards the promise that partax.tree.equal answers as equinox.tree_equal, and that pformat writes what tree_pformat
writes."""

from __future__ import annotations

import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partax import tree
from random_trees import Tag, build, recipes, thorough, variants
from trees import SAMPLES, Bag, Cell, array, double, make_model

NAN = float("nan")
f32, f64 = np.float32, np.float64
PAIRS: dict[str, tuple[Any, Any]] = {
    "values": (array(3), array(3)),
    "other values": (array(3), array(3, start=1)),
    "near": (jnp.ones(2), jnp.ones(2) + 1e-6),
    "shape": (jnp.ones((1, 2)), jnp.ones((2, 1))),
    "dtype": (jnp.ones(2, "int32"), jnp.ones(2, "uint32")),
    "weak": (jnp.asarray(1.0), jnp.ones(())),
    "nan": (jnp.array([NAN]), jnp.array([NAN])),
    "zeros": (jnp.array([0.0, -0.0]), jnp.array([-0.0, 0.0])),
    "empty": (jnp.zeros((0, 2)), jnp.zeros((0, 2))),
    "empty shape": (jnp.zeros((0, 2)), jnp.zeros((2, 0))),
    "bool": (jnp.array([True, False]), jnp.array([True, True])),
    "complex": (jnp.array([1 + 2j]), jnp.array([1 + 2j])),
    "other complex": (jnp.array([1 + 2j]), jnp.array([1 - 2j])),
    "int8": (jnp.arange(5, dtype="int8"), jnp.arange(5, dtype="int8")),
    "half": (jnp.ones(3, "float16"), jnp.ones(3, "float16")),
    "bfloat16": (jnp.ones(3, "bfloat16"), jnp.ones(3, "bfloat16")),
    "other bfloat16": (jnp.ones(3, "bfloat16"), jnp.array([1, 1, NAN], "bfloat16")),
    "int4": (jnp.ones(3, "int4"), jnp.ones(3, "int4")),
    "transposed": (jnp.arange(6).reshape(2, 3).T, jnp.arange(6).reshape(2, 3).T.copy()),
    "keys": (jax.random.key(0), jax.random.key(0)),
    "other keys": (jax.random.key(0), jax.random.key(1)),
    "numpy": (np.ones(3), np.ones(3)),
    "numpy dtype": (np.ones(3), np.ones(3, f32)),
    "numpy nan": (np.array([NAN]), np.array([NAN])),
    "numpy near": (np.ones(3), np.ones(3) + 1e-7),
    "numpy objects": (np.array([1, "a"], object), np.array([1, "a"], object)),
    "numpy and jax": (np.ones(3, f32), jnp.ones(3)),
    "jax and numpy": (jnp.ones(3), np.ones(3, f32)),
    "jax and other numpy": (jnp.ones(3), np.zeros(3, f32)),
    "scalars": (np.float32(1), np.float32(1)),
    "scalar and array": (np.float32(1), np.array(1, f32)),
    "array and number": (jnp.ones(()), 1.0),
    "number and array": (1.0, np.float64(1)),
    "numbers": (1, 1.0),
    "bools": (True, 1),
    "floats": (NAN, NAN),
    "strings": ("a", "b"),
    "functions": (double, double),
    "structure": ([1], (1,)),
    "nodes": (Cell(1), Cell(1, mode="other")),
    "aux": (Tag(1), Tag(1.0)),
    "none": (None, None),
    "none and leaf": (None, 1),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "exact": {},
    "types": {"typematch": True},
    "relative": {"rtol": 1e-4},
    "absolute": {"atol": 1e-3},
    "array": {"rtol": np.float32(1e-4)},
}


def check(*trees: Any, **options: Any) -> bool:
    expected = bool(eqx.tree_equal(*trees, **options))
    found = tree.equal(*trees, **options)
    assert type(found) is bool and found == expected
    return found


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_pairs_are_equal_where_equinox_says_so(pair: tuple[Any, Any], options: dict[str, Any]) -> None:
    one, other = pair
    check(one, other, **options)
    check({"a": [1, one], "b": array(2)}, {"a": [1, other], "b": array(2)}, **options)


@pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)
def test_samples_are_equal_to_themselves_made_anew(make: Any) -> None:
    check(make(), make())


@thorough
@given(recipes, st.data())
def test_random_trees_are_equal_where_equinox_says_so(recipe: Any, data: Any) -> None:
    other = data.draw(st.one_of(st.just(recipe), variants(recipe)))
    check(build(recipe, 1), build(other, 1))
    check(build(recipe, 1), build(recipe, data.draw(st.integers(1, 2))))


def test_one_and_many_trees() -> None:
    assert tree.equal(make_model()) is True
    assert tree.equal(make_model(), make_model(), make_model()) is True
    assert tree.equal(make_model(), make_model(), make_model(start=1.0)) is False
    with pytest.raises(TypeError, match="found no trees"):
        tree.equal()


def test_what_only_the_program_tells_is_traced() -> None:
    seen: list[Any] = []

    @jax.jit
    def f(x: jax.Array, y: jax.Array) -> Any:
        answers = [tree.equal([x, 1], [y, 1]), tree.equal([x, 1], [y, 2]), tree.equal([x], [y[:1]]), tree.equal(1, 1)]
        seen.extend(answers)
        return answers[0]

    assert f(jnp.ones(2), jnp.ones(2)) and not f(jnp.ones(2), jnp.zeros(2))
    assert isinstance(seen[0], jax.core.Tracer) and seen[1:] == [False, False, True]


def test_what_cannot_be_compared_raises() -> None:
    class Refuses:
        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError("no answer")

        __hash__ = object.__hash__

    with pytest.raises(ZeroDivisionError):
        tree.equal([Refuses()], [Refuses()])
    deleted = jnp.ones(3)
    deleted.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        tree.equal([deleted], [jnp.ones(3)])


def test_arrays_on_several_devices_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = np.array(jax.devices())
    spread = NamedSharding(Mesh(devices, ("x",)), PartitionSpec("x"))
    one = jax.device_put(jnp.arange(8.0 * len(devices)), spread)
    assert tree.equal([one], [one + 0]) is True
    assert tree.equal([one], [one + 1]) is False


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_written_as_by_equinox(name: str) -> None:
    pytest.importorskip("wadler_lindig")
    one = SAMPLES[name]()
    assert tree.pformat(one) == eqx.tree_pformat(one)


@pytest.mark.parametrize(
    "options",
    [
        {"width": 20},
        {"indent": 4},
        {"short_arrays": False},
        {"struct_as_array": True},
        {"truncate_leaf": lambda x: isinstance(x, Bag | dict)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_of_pformat_are_equinox_s(options: dict[str, Any]) -> None:
    pytest.importorskip("wadler_lindig")
    one = [make_model(), Bag({"a": 1}), jax.ShapeDtypeStruct((3,), "float32"), jax.nn.relu, jnp.asarray(1.0)]
    one.append(jax.tree_util.Partial(double, array(2), a=1))
    assert tree.pformat(one, **options) == eqx.tree_pformat(one, **options)


def test_pformat_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wadler_lindig", None)
    with pytest.raises(ImportError, match=r'pip install "partax\[pretty\]"'):
        tree.pformat([1])
