"""Guards the promise that a program that needs more memory than there is is found, with the line that needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from examining import examined, floats, marked

from partax._doctor.finding import Finding
from partax._doctor.liveness import memory_limit
from partax._doctor.memory import find_too_much as find

GIB = 1 << 30
MEMINFO = Path("/proc/meminfo")


def attend(x: Any) -> Any:
    scores = x @ x.T  # scores
    return jnp.cumsum(scores, axis=1).sum(1)


SCORES = 1000 * 1000 * 4
PEAK = 2 * SCORES + 1000 * 64 * 4  # the scores and their sums, and x; the result comes when the scores are gone


def estimated(limit: int | None, function: Any = attend, *args: Any) -> list[Finding]:
    """What is found of a program that cannot be compiled, as those of a script."""
    it = examined(jax.jit(function), *(args or (floats(1000, 64),)), memory_limit=limit)
    it.traced = None
    return list(find(it))


def found(limit: int | None, function: Any = attend, *args: Any) -> list[Finding]:
    return list(find(examined(jax.jit(function), *(args or (floats(1000, 64),)), memory_limit=limit)))


def of_xla(function: Any, *args: Any) -> int:
    """XLA's figure, asked for without the doctor."""
    stats = jax.jit(function).lower(*args).compile().memory_analysis()
    return stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes


def test_a_program_over_the_limit_is_found_with_the_line_of_its_largest_array() -> None:
    (finding,) = estimated(PEAK - 1)
    assert (finding.kind, finding.severity) == ("memory", "high")
    assert finding.file == __file__ and finding.line == marked(attend, "scores")
    assert finding.source == "scores = x @ x.T  # scores"
    assert finding.figures["peak_bytes"] == PEAK and finding.figures["limit_bytes"] == PEAK - 1
    assert finding.figures["largest_bytes"] == SCORES
    assert "float32[1000,1000] (3.81 MiB)" in finding.message
    assert "may take" in finding.message and "an estimate" in finding.message


@pytest.mark.parametrize("is_compiled", [True, False])
def test_xla_s_own_figure_is_that_of_what_is_compiled_and_of_a_small_program(is_compiled: bool) -> None:
    peak = of_xla(attend, floats(1000, 64))
    it = examined(jax.jit(attend), floats(1000, 64), memory_limit=peak - 1)
    it.compiled = it.traced.lower().compile() if is_compiled else None
    (finding,) = find(it)
    assert finding.severity == "high" and finding.figures["peak_bytes"] == peak
    assert "takes" in finding.message and "XLA's figure" in finding.message
    assert finding.line == marked(attend, "scores")


@pytest.mark.parametrize(
    ("root", "count", "dims", "estimate"),
    [(lambda x: x, 20_000, 3, ["memory"]), (jnp.sqrt, 20_000, 3, ["memory"]), (jnp.min, 3000, 300, [])],
)
def test_what_the_compiler_fuses_away_is_not_found(root: Any, count: int, dims: int, estimate: list[str]) -> None:
    def distances(x: Any) -> Any:
        return root(((x[:, None] - x[None]) ** 2).sum(-1)).sum()

    x = floats(count, dims)
    assert of_xla(distances, x) < GIB
    assert [it.kind for it in estimated(64 * GIB, distances, x)] == estimate
    assert found(64 * GIB, distances, x) == []
    assert found(GIB, distances, x) == []


def test_what_xla_does_not_count_is_estimated() -> None:
    """A whole attention is one call of a library on a CPU."""

    def scores(query: Any, key: Any, value: Any) -> Any:
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", query, key)), value)

    (finding,) = found(GIB, scores, *[floats(16, 4096, 64)] * 3)
    assert finding.figures["largest_bytes"] == GIB


def test_one_that_nearly_fills_it_is_of_medium_severity_and_others_are_silent() -> None:
    assert [it.severity for it in estimated(PEAK)] == ["medium"]
    assert [it.severity for it in estimated(int(PEAK / 0.81))] == ["medium"]
    assert estimated(int(PEAK / 0.79)) == []


@pytest.mark.skipif(not MEMINFO.exists(), reason="only Linux says it there")
def test_the_limit_is_the_memory_of_the_machine_where_nothing_else_is_said() -> None:
    limit = memory_limit(examined(jax.jit(attend), floats(10, 4)))
    assert limit == int(MEMINFO.read_text().split()[1]) * 1024
    n = int((limit / 4) ** 0.5 * 1.1)
    assert [it.severity for it in found(None, attend, floats(n, 2))] == ["high"]


def embed(tokens: Any, table: Any) -> Any:
    rows = jax.nn.one_hot(tokens, table.shape[0])  # rows
    return rows @ table


@pytest.mark.parametrize(("tokens", "count"), [(1 << 12, 0), ((1 << 12) + 2, 1)])
def test_an_array_of_a_gib_that_dwarfs_the_arguments_is_found(tokens: int, count: int) -> None:
    size = tokens * 65535 * 4  # a little under and over 1 GiB
    findings = found(1 << 50, embed, jax.ShapeDtypeStruct((tokens,), "int32"), floats(65535, 8))
    assert len(findings) == count
    for finding in findings:
        assert finding.severity == "medium" and finding.line == marked(embed, "rows")
        assert finding.figures["largest_bytes"] == size
        assert "jax.lax.map" in finding.advice


@pytest.mark.parametrize(("width", "count"), [(16, 1), (4096, 0)])
def test_one_beside_arguments_of_its_size_is_not(width: int, count: int) -> None:
    """A product of 1 GiB, of two factors of 1 MiB or of 256 MiB."""

    def product(a: Any, b: Any) -> Any:
        return jnp.cumsum(a @ b).sum()

    assert len(found(1 << 50, product, floats(1 << 14, width), floats(width, (1 << 14) + 1))) == count


def test_a_stack_of_a_scan_is_for_the_scan_s_line() -> None:
    def run(x: Any) -> Any:
        _, kept = jax.lax.scan(lambda c, _: (c @ c, c), x, None, length=100)  # scan
        return jnp.sort(kept.reshape(-1))[0]

    (finding,) = found(100 * 100 * 100 * 4, run, floats(100, 100))
    assert finding.line == marked(run, "scan") and "scan's body" in finding.advice
