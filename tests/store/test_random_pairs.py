"""Guards the promise that of two programs that differ in one place, each gets its own result from one folder."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from user_modules import NAME

import partax
from short_programs import imported
from stored import written

sys.path.append(str(Path(__file__).parents[1] / "guards"))
from test_random_programs import made_of
from test_stale import ANEW, PROGRAMS

PAIRS = int(os.environ.get("PARTAX_PAIRS", "40"))
pytestmark = pytest.mark.compiled_anew


def unseen(x: Any) -> Any:
    return x


def first_call(names: list[str], change: int | None, folder: Path) -> tuple[float, float, int]:
    """What the first call in a process gives, what plain Python gives, and how often the body ran for it."""
    with contextlib.ExitStack() as stack:
        programs = [imported(PROGRAMS[name], folder, f"{NAME}_{i}") for i, name in enumerate(names)]
        modules = [stack.enter_context(program) for program in programs]
        if change is not None:
            modules[change % len(modules)].change()
        step = partax.filter_jit(made_of(modules, unseen))
        step.clear_cache()  # of an equal function before: another process has none
        found = float(step(jnp.float32(0.5)))
        traces = step.cache_info().traces
        step.clear_cache()
        written()
        return found, float(made_of(modules, unseen)(jnp.float32(0.5))), traces


@pytest.mark.filterwarnings("ignore")
def test_of_two_programs_that_differ_in_one_place_each_gets_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    loads = {"same": 0, "changed": 0, "all": 0}

    @given(
        names=st.lists(st.sampled_from(sorted(ANEW)), min_size=1, max_size=4, unique=True),
        change=st.none() | st.integers(0, 3),
    )
    @settings(
        max_examples=PAIRS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        derandomize=PAIRS < 1000,
    )
    def each(names: list[str], change: int | None) -> None:
        folder = tmp_path_factory.mktemp("pair")
        with partax.store(folder / "store"):
            for changed in (None, change):
                found, right, traces = first_call(names, changed, folder)
                assert found == pytest.approx(right, rel=1e-5), (names, change)
        loads["all"] += change is None
        loads["same" if change is None else "changed"] += traces == 0

    each()
    # Else it would say nothing of what is stored.
    assert loads["same"] > loads["all"] // 2 and loads["changed"] == 0, loads
