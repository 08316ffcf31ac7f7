"""Guards the promise that a loaded program is as one that was traced here: in its errors, and in what comes back."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import partax
from stored import written

pytestmark = [pytest.mark.compiled_anew, pytest.mark.filterwarnings("ignore::partax.RetraceWarning")]
Ready = Callable[..., Any]


@pytest.fixture(params=["traced", "loaded"])
def ready(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ready]:
    """Gives a wrapper that has been called by nobody: its program is traced here, or was stored by an earlier call."""
    is_loaded = request.param == "loaded"

    def ready(step: Any, *first: Any) -> Any:
        step.clear_cache()
        for _ in range(2 * is_loaded):  # the first one may be that of a class, too
            step(*jax.tree.map(copy.copy, first))
            written()
            step.clear_cache()
        assert any(tmp_path.iterdir()) is is_loaded
        return step

    with partax.store(tmp_path if is_loaded else None):
        yield ready


def ones(*shape: int) -> jax.Array:
    return jnp.ones(shape)


@pytest.mark.parametrize("donate", [("a",), "all"])
@pytest.mark.parametrize("forwards", [False, True])
def test_an_array_that_is_given_away_and_used_is_refused(donate: Any, forwards: bool, ready: Ready) -> None:
    step = ready(partax.filter_jit(lambda a, b: (a + 1, b if forwards else b * 2), donate=donate), ones(3), ones(3) * 3)
    x = ones(3) * 4
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"Attempt to .*donate") as raised:
            step(x, x)
        assert "`a`" in f"{raised.value} {getattr(raised.value, '__notes__', '')}" and not x.is_deleted()
    assert np.array_equal(step(x, ones(3) * 7)[0], np.full(3, 5))


@pytest.mark.parametrize("bound", [False, True])
def test_a_check_for_nan_raises_the_error_of_jax(bound: bool, ready: Ready) -> None:
    zeros = jnp.zeros(3)
    step = ready(partax.filter_jit(lambda w, x: w / x), zeros, ones(3))
    divide = step.bind(zeros) if bound else lambda x: step(zeros, x)
    for _ in range(3):
        divide(ones(3))
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        divide(zeros)
    assert np.isnan(divide(zeros)).all()


class Part(eqx.Module):
    w: Any
    rate: float = 0.5
    size: int = 1000
    act: Callable[[Any], Any] = eqx.field(static=True, default=jnp.tanh)


class Two(NamedTuple):
    first: Any
    second: Any
    rate: float = 0.25


def test_parts_and_objects_of_the_call_come_back_as_they_are(ready: Ready) -> None:
    act = lambda x: x + 1
    make = lambda: Two(Part(ones(2), act=act), (ones(3), "x" * 30, 10**6, True))
    step = ready(
        partax.filter_jit(lambda tree: (Two(tree.first, ones(2)), tree[1], Part(ones(2), 3.0, 5, act))), make()
    )
    for _ in range(3):
        tree = make()
        half, second, new = step(tree)
        assert half.first is tree.first and second is tree.second and (new.rate, new.size, new.act) == (3.0, 5, act)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (2, 3)])
def test_an_array_over_several_devices_is_moved(order: tuple[int, ...], ready: Ready, devices: list[Any]) -> None:
    asked, given = (
        NamedSharding(Mesh(np.array(devices)[[*places]], ("a",)), PartitionSpec("a")) for places in ((0, 1), order)
    )
    found = ready(partax.filter_jit(lambda x: x + 1, in_shardings=asked), ones(4))(jax.device_put(ones(4), given))
    assert np.array_equal(found, np.full(4, 2)) and found.sharding == asked


def test_an_array_elsewhere_is_moved_to_where_the_options_say(ready: Ready, devices: list[Any]) -> None:
    step = ready(partax.filter_jit(lambda x: x + 1, in_shardings=SingleDeviceSharding(devices[1])), ones(3))
    for device in (devices[2], devices[1], devices[0]):
        found = step(jax.device_put(ones(3), device))
        assert np.array_equal(found, np.full(3, 2)) and found.devices() == {devices[1]}
