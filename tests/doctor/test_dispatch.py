"""Guards the promise that arguments that Python takes apart in each call are found, with the cure that there is."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import pytest
from examining import floats, found_by
from flax import nnx

import partax
from partax import filter_jit
from partax._doctor.dispatch import find_flattening
from partax._report import flatten_costs

found = found_by(find_flattening)


def total(tree: Any) -> Any:
    return sum(leaf.sum() for leaf in jax.tree.leaves(tree))


class Clock:
    """One by which only flattening takes time."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(flatten_costs, "time", clock)
    return clock


def boxed(clock: Clock, seconds: float) -> type:
    """A class of which flattening takes so long."""

    class Box:
        def __init__(self, value: Any):
            self.value = value

    def flatten(box: Any) -> Any:
        clock.now += seconds
        return (box.value,), None

    jax.tree_util.register_pytree_node(Box, flatten, lambda _, children: Box(*children))
    return Box


@pytest.mark.parametrize(("count", "microseconds", "findings"), [(1, 99, 0), (1, 101, 1), (33, 3, 0), (34, 3, 1)])
def test_a_class_with_registered_functions_is_found_from_a_time_on(
    count: int, microseconds: int, findings: int, clock: Clock
) -> None:
    box = boxed(clock, microseconds * 1e-6)
    result = found(filter_jit(total), [box(floats(2)) for _ in range(count)])
    assert len(result) == findings
    for finding in result:
        assert (finding.kind, finding.severity, finding.path) == ("dispatch", "low", "tree")
        assert finding.figures["nodes"] == finding.figures["arrays"] == count
        assert finding.figures["flatten_seconds"] == pytest.approx(count * microseconds * 1e-6)
        assert "partax.register_fields(Box" in finding.advice


def test_a_class_whose_fields_are_declared_is_silent(clock: Clock) -> None:
    box = boxed(clock, 20e-6)
    tree = [box(floats(2)) for _ in range(20)]
    (finding,) = found(filter_jit(total), tree)
    assert finding.figures["nodes"] == finding.figures["arrays"] == 20
    partax.register_fields(box, data=("value",))
    assert found(filter_jit(total), tree) == []


@pytest.mark.parametrize(("count", "findings"), [(298, 0), (299, 1)])
def test_classes_that_partax_reads_are_found_where_another_jit_calls_python_for_many(count: int, findings: int) -> None:
    state = nnx.State({f"w{i}": nnx.Param(floats(2)) for i in range(count)})  # a node of its own, with the Params in it
    result = found(jax.jit(lambda state, x: total(state) + x), state, floats())
    assert len(result) == findings
    for finding in result:
        assert finding.path == "state" and finding.figures["nodes"] == count + 1 and finding.figures["arrays"] == count
        assert "partax.filter_jit" in finding.advice and "`Param`" in finding.message
    assert found(filter_jit(lambda state, x: total(state) + x), state, floats()) == []


def test_plain_containers_are_silent() -> None:
    tree = {f"w{i}": [floats(2), (floats(3), None)] for i in range(500)}
    assert found(jax.jit(total), tree) == []
    assert found(filter_jit(total), tree) == []


def test_modules_are_silent_for_partax() -> None:
    modules = [eqx.nn.Linear(2, 3, key=jax.random.key(0)) for _ in range(400)]
    assert found(filter_jit(lambda modules: total(eqx.filter(modules, eqx.is_array))), modules) == []
