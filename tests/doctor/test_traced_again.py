"""Guards what the doctor says of a function with several programs: few sizes are as they should be, all else is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from examining import floats

from partax import Finding
from partax._doctor.compiled_programs import Program
from partax._doctor.traced_again import of_programs

MADE_ANEW = "make the function once"
PAD = "such as powers of two"


def forward(x: Any, train: Any) -> Any:
    return jnp.tanh(x) if train else x


def findings_of(calls: Sequence[tuple[Any, bool]], times: int = 1) -> list[Finding]:
    """Of the programs of these calls, each of which was compiled so often."""
    traced = [jax.jit(forward, static_argnums=1).trace(x, train).jaxpr for x, train in calls]
    found = of_programs([Program("forward", it, (False,), ("x",), times, Counter(compile=1.0)) for it in traced], ())
    return [finding for it in found for finding in it.findings]


def sizes(*lengths: int, dtype: str = "float32") -> list[tuple[Any, bool]]:
    return [(floats(length, dtype=dtype), True) for length in lengths]


@pytest.mark.parametrize(
    ("calls", "times", "severity", "advice"),
    [
        (sizes(*range(1, 10)), 1, "low", PAD),
        (sizes(*range(5, 10)), 1, "low", PAD),
        (sizes(*range(1, 11)), 1, "high", PAD),
        (sizes(8, 16, 32), 2, "medium", MADE_ANEW),
        ([*sizes(8, 16), *sizes(32, dtype="float16")], 1, "medium", MADE_ANEW),
        ([*sizes(8, 16), (floats(16), False)], 1, "medium", MADE_ANEW),  # a static argument alone
    ],
)
def test_a_few_sizes_are_of_low_severity(calls: list[tuple[Any, bool]], times: int, severity: str, advice: str) -> None:
    (finding,) = findings_of(calls, times)
    assert (finding.kind, finding.severity) == ("retrace", severity)
    assert advice in finding.advice


@pytest.mark.parametrize(
    "calls",
    [
        sizes(8, 16, 32, 64, 128, 256),
        sizes(*range(32, 320, 32)),
        [*sizes(64, 58), (floats(64), False), (floats(58), False)],  # two modes, and a last batch
        [(floats(length), train) for length in (9, 7) for train in (True, False)],
    ],
)
def test_buckets_are_as_they_should_be(calls: list[tuple[Any, bool]]) -> None:
    assert findings_of(calls) == []


def test_another_structure_is_as_another_shape() -> None:
    def total(state: Any) -> Any:
        return sum(jax.tree.leaves(state))

    states = [dict.fromkeys(names, floats(3)) for names in ("a", "ab", "b", "bc", "abc")]
    programs = [
        Program("total", jax.jit(total).trace(it).jaxpr, (False,) * len(it), tuple(it), 1, Counter(compile=1.0))
        for it in states
    ]
    [diagnosis] = of_programs(programs, ())
    assert [it.severity for it in diagnosis.findings] == ["low"]
