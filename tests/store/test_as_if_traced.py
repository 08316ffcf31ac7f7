"""Guards the promise that a loaded program is as one that was traced here: in its errors, and in what comes back."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import SingleDeviceSharding

import partax
import partax.nnx
from stored import written

pytestmark = pytest.mark.compiled_anew
Call = Callable[..., Any]


@pytest.fixture(params=["traced", "loaded"])
def ready(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Call]]:
    """Gives a wrapper that has been called by nobody: its program is traced here, or was stored by an earlier call."""
    with partax.store(tmp_path if request.param == "loaded" else None):

        def ready(step: Any, *first: Any, of: Callable[[Any], Call] = lambda step: step) -> Call:
            step.clear_cache()
            for _ in range(2 if request.param == "loaded" else 0):  # the first one may be that of a class, too
                of(step)(*jax.tree.map(copy.copy, first))
                written()
                step.clear_cache()
            assert any(tmp_path.iterdir()) is (request.param == "loaded")
            return of(step)

        yield ready


def ones(*shape: int) -> jax.Array:
    return jnp.ones(shape)


@pytest.mark.parametrize("donate", [("a",), "all"])
@pytest.mark.parametrize("forwards", [False, True])
def test_an_array_that_is_given_away_and_used_is_refused(
    donate: Any, forwards: bool, ready: Callable[..., Call]
) -> None:
    step = ready(
        partax.filter_jit(lambda a, b: (a + 1, b if forwards else b * 2), donate=donate), ones(3) * 2, ones(3) * 3
    )
    x = ones(3) * 4
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"Attempt to .*donate") as raised:
            step(x, x)
        assert "`a`" in f"{raised.value} {getattr(raised.value, '__notes__', '')}"
        assert not x.is_deleted()
    assert np.array_equal(step(x, ones(3) * 7)[0], np.full(3, 5))


@pytest.mark.parametrize("bound", [False, True])
def test_a_check_for_nan_raises_the_error_of_jax(bound: bool, ready: Callable[..., Call]) -> None:
    zeros = jnp.zeros(3)
    divide = ready(
        partax.filter_jit(lambda w, x: w / x),
        *([] if bound else [zeros]),
        ones(3),
        of=lambda step: step.bind(zeros) if bound else step,
    )
    arguments = [] if bound else [zeros]
    for _ in range(3):
        divide(*arguments, ones(3))
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        divide(*arguments, zeros)
    assert np.isnan(divide(*arguments, zeros)).all()


class Part(eqx.Module):
    w: Any
    rate: float = 0.5
    name: str = "a part"


class Two(NamedTuple):
    first: Any
    second: Any
    rate: float = 0.25


def test_whole_parts_come_back_as_the_same_objects(ready: Callable[..., Call]) -> None:
    make = lambda: Two(Part(ones(2)), (ones(3), "x" * 30))
    step = ready(partax.filter_jit(lambda tree: {"half": Two(tree.first, ones(2)), "second": tree.second}), make())
    for _ in range(3):
        tree = make()
        found = step(tree)
        assert found["half"].first is tree.first and found["second"] is tree.second


@pytest.mark.parametrize("option", ["device", "in_shardings"])
def test_an_array_elsewhere_is_moved_to_where_the_options_say(
    option: str, ready: Callable[..., Call], devices: list[Any]
) -> None:
    options = {"device": devices[1]} if option == "device" else {"in_shardings": SingleDeviceSharding(devices[1])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        wrapper: Any = partax.filter_jit(lambda x: x + 1, **options)
    step = ready(wrapper, ones(3))
    for device in (devices[2], devices[1], devices[0]):
        found = step(jax.device_put(ones(3), device))
        assert np.array_equal(found, np.full(3, 2)) and found.devices() == {devices[1]}


class Scaled(nnx.Module):
    def __init__(self) -> None:
        self.by, self.drop = nnx.Param(ones(4)), nnx.Dropout(0.5, rngs=nnx.Rngs(0))

    def __call__(self, x: Any) -> Any:
        return self.drop(x * self.by)


@pytest.mark.filterwarnings("error")
def test_a_bound_object_that_others_have_changed_is_refused(ready: Callable[..., Call]) -> None:
    def change(model: Any) -> Any:
        model.eval()
        model.width = 3
        return model

    model = Scaled()
    apply = ready(partax.nnx.jit(lambda model, x: model(x)), change(Scaled()), ones(2, 4))
    bound = apply.bind(model)  # type: ignore[attr-defined]
    for _ in range(3):
        bound(ones(3, 4))
    change(model)
    bound(ones(3, 4))
    with pytest.raises(RuntimeError, match="bind anew what you change"):
        bound(ones(2, 4))
    assert np.array_equal(bound.rebind(model)(ones(2, 4)), np.ones((2, 4)))
