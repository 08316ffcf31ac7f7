"""A call of thousands of arrays, which jax gets as one tuple, is as any other call."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from conftest import TraceCounter
from partax import filter_jit
from partax._jit.build_target import _MANY
from trees import array, assert_same


@pytest.fixture(params=[pytest.param(_MANY, marks=pytest.mark.nightly), _MANY + 1], ids=["as many", "one more"])
def arrays(request: pytest.FixtureRequest) -> list[jax.Array]:
    return [array(2, start=float(i)) for i in range(request.param)]


def scaled(arrays: list[Any], n: float) -> Any:
    return [x * n for x in arrays[:3]], {"rest": arrays[3:]}, n


def test_results_traces_and_what_comes_back(arrays: list[jax.Array], traces: TraceCounter) -> None:
    @filter_jit
    def f(arrays: list[Any], n: float) -> Any:
        traces.tick()
        return scaled(arrays, n)

    for n in (2.0, 3.0, 2.0, 3.0):
        found = f(arrays, n)
        assert_same(found, scaled(arrays, n))
        assert all(a is b for a, b in zip(found[1]["rest"], arrays[3:], strict=True))
    assert traces.count == 2
    f([array(3), *arrays[1:]], 2.0)
    assert traces.count == 3


def test_ahead_of_time(arrays: list[jax.Array]) -> None:
    f = filter_jit(scaled)
    abstract = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
    compiled = f.lower(abstract, 2.0).compile()
    for _ in range(3):
        found = compiled(arrays, 2.0)
        assert_same(found, scaled(arrays, 2.0))
        assert found[1]["rest"][5] is arrays[8]
    assert f.eval_shape(abstract, 2.0)[0][1].shape == (2,)
    with pytest.raises(TypeError, match=r"`arrays\[7\]`: compiled for float32\[2\], called with float32\[3\]"):
        compiled([*arrays[:7], array(3), *arrays[8:]], 2.0)
    with pytest.raises(TypeError, match=r"`n`: compiled with 2.0, called with 3.0"):
        compiled(arrays, 3.0)


def test_errors_name_the_array(arrays: list[jax.Array]) -> None:
    f = filter_jit(scaled)
    f(arrays, 2.0)
    arrays[10].delete()
    with pytest.raises(RuntimeError, match="deleted") as error:
        f(arrays, 2.0)
    assert error.value.__notes__ == ["partax: it is `arrays[10]`, which the function returns"]
    with pytest.raises(TypeError, match=rf"`arrays\[{len(arrays)}\]`"):
        f([*arrays, type("Odd", (), {"__hash__": None})()], 2.0)


def test_errors_of_jax_name_the_array(arrays: list[jax.Array]) -> None:
    f = filter_jit(lambda arrays: arrays[0] if arrays[7][0] > 0 else arrays[1])
    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"the argument arrays\[7\]"):
        f(arrays)


def test_donated_arrays_are_given_away(arrays: list[jax.Array]) -> None:
    f = filter_jit(lambda arrays, n: ([x + n for x in arrays[1:]], arrays[0]), donate=("arrays",))
    for n in (1.0, 1.0):
        given = [jnp.copy(x) for x in arrays]
        added, first = f(given, n)
        assert_same(added, [x + n for x in arrays[1:]])
        assert first is given[0] and not first.is_deleted() and given[1].is_deleted()


def test_under_transformations(arrays: list[jax.Array]) -> None:
    f = filter_jit(lambda arrays: sum(x.sum() for x in arrays[:5]) * 2)
    expected = jax.grad(f.__wrapped__)(arrays)
    assert_same(jax.grad(f)(arrays), expected)
    assert_same(jax.jit(f)(arrays), jax.jit(f.__wrapped__)(arrays))
    batched = [jnp.stack([x, x]) for x in arrays]
    assert_same(jax.vmap(f)(batched), jax.vmap(f.__wrapped__)(batched))
