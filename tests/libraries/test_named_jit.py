"""Guards the promise that what haliax's `named_jit` returns runs by partax while accelerated, as it does without."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import partax.equinox
from conftest import TraceCounter

hax: Any = pytest.importorskip("haliax", exc_type=ImportError)

BY_BATCH, BY_EMBED = {"batch": "data"}, {"embed": "data"}
OPTIONS: list[dict[str, Any]] = [
    {"axis_resources": BY_EMBED, "out_axis_resources": BY_BATCH},
    {"in_axis_resources": BY_BATCH, "out_axis_resources": {}},
    {"donate_args": True, "axis_resources": BY_BATCH},
    {"donate_args": (False, True), "donate_kwargs": {"z": True}, "keep_unused": True},
]


def named() -> Any:
    return hax.named(jnp.arange(32.0).reshape(4, 8), ("batch", "embed"))


def set_mesh(count: int) -> Any:
    return jax.set_mesh(jax.sharding.Mesh(jax.devices()[:count], ("data",)))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_results_shardings_errors_and_donation_are_haliaxs(options: Any) -> None:
    def outcome(scale: float, mapping: Any) -> Any:
        arguments = named(), jnp.ones(3), named()
        with hax.axis_mapping(mapping):
            try:
                result = jitted(arguments[0], arguments[1], scale, z=arguments[2])
            except ValueError as error:  # an argument that has another sharding
                result = "does not match" in str(error)
        texts = [(str(x), str(getattr(x, "sharding", ""))) for x in jax.tree.leaves(result)]
        return texts, [x.is_deleted() for x in jax.tree.leaves(arguments)]

    jitted = hax.named_jit(lambda x, y, n, *, z: (hax.auto_sharded(x + 1), y * n, z - 1, "a"), **options)
    for count in (1, 4):
        with set_mesh(count):
            calls = [(scale, mapping) for scale in (2.0, 2.0, 3.0) for mapping in ({}, BY_BATCH)]
            expected = [outcome(*call) for call in calls]
            with partax.equinox.accelerate():
                assert [outcome(*call) for call in calls] == expected


def test_the_mapping_in_force_decides_on_the_program(traces: TraceCounter) -> None:
    with partax.equinox.accelerate(), set_mesh(4):
        x = named()
        plain = hax.named_jit(lambda x: traces.tick() or hax.auto_sharded(x * 2))
        for mapping in (BY_BATCH, BY_EMBED, dict(BY_BATCH)):
            with hax.axis_mapping(mapping):
                assert plain(x).array.sharding.spec == hax.partitioning.pspec_for_axis(x.axes, mapping)
        assert traces.count == 2
        assert jax.grad(lambda y: plain(y).sum().array)(x).array.tolist() == [[2.0] * 8] * 4
