"""Guards the promise that of two programs that differ in one place, each gets its own result from one folder."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import partax
from stored import written

sys.path.append(str(Path(__file__).parents[1] / "statics"))
from test_random_programs import CHANGES, PLAIN, READS, UNPROVEN, World, settings_kept, text, values, world

PAIRS = int(os.environ.get("PARTAX_PAIRS", "40"))
PROVEN = [read for read in READS if not read.startswith(UNPROVEN)]
X = np.float32(1)

pytestmark = pytest.mark.compiled_anew


def unseen(x: Any) -> Any:
    return x  # where the programs count, which is not proven


def first_call(program: World) -> tuple[str, str, int]:
    """What the first call in a process gives, what plain Python gives, and how often the body ran for it."""
    program.space["seen"] = unseen
    step = partax.filter_jit(program.make())
    step.clear_cache()  # of an equal function before: another process has none
    found, right = text(step(X)), text(program.make()(X))
    traces = step.cache_info().traces
    step.clear_cache()
    written()
    return found, right, traces


loads = {"same": 0, "pairs": 0}


@given(
    constants=st.lists(PLAIN, min_size=17, max_size=17),
    held=st.lists(values, min_size=6, max_size=6),
    reads=st.lists(st.sampled_from(PROVEN), min_size=1, max_size=5, unique=True),
    place=st.one_of(st.integers(0, 22), st.sampled_from(sorted(CHANGES))),
    value=values,
)
@settings(
    max_examples=PAIRS, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=PAIRS < 1000
)
def test_of_two_programs_that_differ_in_one_place_each_gets_its_own(
    tmp_path_factory: pytest.TempPathFactory,
    constants: list[Any],
    held: list[Any],
    reads: list[str],
    place: int | str,
    value: Any,
) -> None:
    with settings_kept(), partax.store(tmp_path_factory.mktemp("store")):
        found, right, _ = first_call(world(constants, held, reads))
        assert found == right, reads
        other_constants, other_held = list(constants), list(held)
        if isinstance(place, int):
            (other_constants if place < 17 else other_held)[place % 17] = value if place >= 17 else repr_of(value)
        other = world(other_constants, other_held, reads)
        if isinstance(place, str):
            CHANGES[place](other, value)
        found, right, traces = first_call(other)
        assert found == right, (reads, place, value)
        loads["pairs"] += 1
        loads["same"] += traces == 0
    gc.collect(0)


def repr_of(value: Any) -> Any:
    """A value that a program can have as a constant."""
    return value if any(value is it for it in PLAIN_VALUES) else 7


PLAIN_VALUES = [0, 1, 2, True, False, "a", "b", None]


def test_a_part_of_the_pairs_was_loaded() -> None:
    """Else the test above would say nothing of what is stored."""
    assert loads["pairs"] == 0 or loads["same"] >= loads["pairs"] // 8, loads
