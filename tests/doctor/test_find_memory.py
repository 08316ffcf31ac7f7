"""Guards the promise that programs that need much memory, and scans that autodiff keeps, are found by line, and that
the estimate of the live bytes is near what XLA measures."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from examining import examined, floats, found_by, ints, marked

from older_jax import IS_OLDER, not_on_older_jax
from partax import filter_jit
from partax._doctor.equations import Equations, bytes_of
from partax._doctor.finding import Finding
from partax._doctor.flat_program import flat_program
from partax._doctor.lines import NOWHERE
from partax._doctor.liveness import live_bytes, memory_limit
from partax._doctor.memory import Residuals, find_residuals, residuals
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


@not_on_older_jax("fuses less of it")
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
    findings = found(1 << 50, embed, ints(tokens), floats(65535, 8))
    assert len(findings) == count
    for finding in findings:
        assert finding.severity == "medium" and finding.line == marked(embed, "rows")
        assert finding.figures["largest_bytes"] == size
        assert "jax.lax.map" in finding.advice
    factors = floats(1 << 14, 4096), floats(4096, (1 << 14) + 1)  # of 256 MiB each, beside which it is no surprise
    assert found(1 << 50, lambda a, b: jnp.cumsum(a @ b).sum(), *factors) == []


def test_a_stack_of_a_scan_is_for_the_scan_s_line() -> None:
    def run(x: Any) -> Any:
        _, kept = jax.lax.scan(lambda c, _: (c @ c, c), x, None, length=100)  # scan
        return jnp.sort(kept.reshape(-1))[0]

    (finding,) = found(100 * 100 * 100 * 4, run, floats(100, 100))
    assert finding.line == marked(run, "scan") and "scan's body" in finding.advice


found_residuals = found_by(find_residuals)


def deep_cell(h: Any, x: Any, w: Any) -> Any:
    for _ in range(3):
        h = jnp.tanh(h @ w + x)
    return h, h.sum()


def loss_with(wrap: Any, cell: Any = deep_cell) -> Any:
    def loss(w: Any, xs: Any) -> Any:
        h, sums = jax.lax.scan(wrap(lambda h, x: cell(h, x, w)), jnp.zeros((64, 128)), xs)  # scan
        return (h**2).sum() + sums.mean()

    return loss


def stacked_bytes(function: Any, *args: Any) -> int:
    """What all scans stack, told without the doctor's rules: each output as long as the scan. No carry here is."""
    jaxpr = jax.make_jaxpr(function)(*args).jaxpr
    scans = [it for it in Equations(jaxpr).eqns if it.primitive.name == "scan" and not it.params["reverse"]]
    outputs = [(eqn.params["length"], var.aval) for eqn in scans for var in eqn.outvars]
    return sum(bytes_of(aval) for length, aval in outputs if aval.shape[:1] == (length,))


def all_residuals(function: Any, *args: Any) -> list[Residuals]:
    return [it for program in flat_program(examined(function, *args)).all for it in residuals(program)]


def kept(function: Any, *args: Any) -> list[tuple[int, int]]:
    return [(it.bytes, it.saved_bytes) for it in all_residuals(jax.jit(function), *args)]


def linear_cell(h: Any, x: Any, w: Any) -> Any:
    return h + jnp.sin(x * w[:64]), jnp.zeros(())


@pytest.mark.parametrize("cell", [deep_cell, linear_cell], ids=lambda it: it.__name__)
@pytest.mark.parametrize("call", [lambda it: it, jax.jit], ids=["plain", "in a call"])
def test_the_figures_are_those_of_the_checkpointed_program(cell: Any, call: Any) -> None:
    args = (floats(128, 128), floats(100, 64, 128))
    plain, again = (call(jax.grad(loss_with(wrap, cell))) for wrap in (lambda it: it, jax.checkpoint))
    of_user = 100 * 4  # the sums
    ((size, saved),) = kept(plain, *args)
    assert size == stacked_bytes(plain, *args) - of_user
    assert size - saved == stacked_bytes(again, *args) - of_user
    assert all(left == 0 for _, left in kept(again, *args))


PLAIN, AGAIN = (
    (stacked_bytes(jax.grad(loss_with(wrap)), floats(128, 128), floats(10, 64, 128)) // 10 - 4)
    for wrap in (lambda it: it, jax.checkpoint)
)
SPARED = PLAIN - AGAIN  # of each step
LONG = (256 << 20) // SPARED


@pytest.mark.parametrize(("length", "count"), [(LONG, 0), (LONG + 1, 1)])
def test_it_is_found_from_a_size_on(length: int, count: int) -> None:
    loss = loss_with(lambda it: it)
    findings = found_residuals(jax.jit(jax.grad(loss)), floats(128, 128), floats(length, 64, 128))
    assert len(findings) == count
    for finding in findings:
        assert (finding.kind, finding.severity) == ("checkpoint", "medium")
        assert (finding.file, finding.line) == (__file__, marked(loss_with, "scan"))
        assert finding.figures["bytes"] == length * PLAIN
        assert finding.figures["saved_bytes"] == length * SPARED
        assert finding.figures["length"] == length
        assert "jax.checkpoint" in finding.advice


def small(w: Any, xs: Any) -> Any:
    return jnp.sum(jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros(512), xs)[0])


@pytest.mark.parametrize(("limit", "count"), [(8 << 20, 1), (64 << 20, 0), (None, 0)])
def test_little_counts_where_there_is_little_memory(limit: int | None, count: int) -> None:
    args = floats(512, 512), floats(2000, 512)
    assert len(found_residuals(jax.jit(jax.grad(small)), *args, memory_limit=limit)) == count


@pytest.mark.parametrize("length", [100, 2000])
def test_the_advised_chunks_keep_what_is_told(length: int) -> None:
    (it,) = all_residuals(jax.jit(jax.grad(small)), floats(512, 512), floats(length, 512))
    count = length // it.chunk

    def chunked(w: Any, xs: Any) -> Any:
        step = lambda h, x: (jnp.tanh(h @ w + x), None)
        chunk = jax.checkpoint(lambda h, xs: (jax.lax.scan(step, h, xs)[0], None))
        return jnp.sum(jax.lax.scan(chunk, jnp.zeros(512), xs)[0])

    args = floats(512, 512), floats(count, it.chunk, 512)
    kept_chunks = stacked_bytes(jax.grad(chunked), *args)  # of the outer and of the inner scan
    assert kept_chunks == pytest.approx(it.chunked_bytes, rel=0.1)


@pytest.mark.parametrize(("gib", "count"), [(6, 0), (3, 1)])
def test_it_is_found_where_it_is_most_of_what_the_program_needs(gib: int, count: int) -> None:
    """Beside another argument: recomputing spares 6 GiB of about 8."""

    def loss(w: Any, xs: Any, other: Any) -> Any:
        return loss_with(lambda it: it)(w, xs) + other[0]

    length = (6 << 30) // SPARED + 1
    args = floats(128, 128), floats(length, 64, 128), floats(gib << 28)
    ((_, saved),) = kept(jax.grad(loss), *args)
    assert saved >= 6 << 30
    assert len(found_residuals(jax.jit(jax.grad(loss)), *args)) == count


def test_what_the_user_reads_too_is_not_spared() -> None:
    def loss(x: Any, w: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            h = jnp.sin(h * w)
            return h, h

        _, all_steps = jax.lax.scan(cell, x, None, length=50)
        return jnp.sort(all_steps.sum(1)).mean(), all_steps

    gradient = jax.grad(loss, has_aux=True)
    for size, saved in kept(gradient, floats(64), floats(64)):
        assert 0 <= saved < size < stacked_bytes(gradient, floats(64), floats(64))


def test_two_scans_in_a_row_without_a_gradient_keep_nothing() -> None:
    def smooth(x: Any, ys: Any) -> Any:
        h, forward = jax.lax.scan(lambda h, y: (0.9 * h + y, h), x, ys)
        return jax.lax.scan(lambda h, y: (0.5 * h + y, h), h, forward)[1]

    assert kept(smooth, floats(64), floats(100, 64)) == []


@pytest.mark.parametrize("jit", [jax.jit, filter_jit], ids=["jax", "partax"])
def test_a_training_step_in_a_scan_is_looked_into(jit: Any) -> None:
    def train(w: Any, batches: Any) -> Any:
        def step(w: Any, xs: Any) -> Any:
            return w - jax.grad(loss_with(lambda it: it))(w, xs), None

        return jax.lax.scan(step, w, batches)[0]

    (finding,) = found_residuals(jit(train), floats(128, 128), floats(2, 4 * LONG, 64, 128))
    assert finding.figures["bytes"] == 4 * LONG * PLAIN and finding.line == marked(loss_with, "scan")


def test_a_loop_needs_what_its_body_needs() -> None:
    cell = lambda h, x: ((h @ h) @ h, None)  # two products of 64 x 64: the inner one, and the new carry
    it = examined(jax.jit(lambda h, xs: jax.lax.scan(cell, h, xs)[0]), floats(64, 64), floats(100))
    one = 64 * 64 * 4
    assert live_bytes(it).peak == one + 100 * 4 + one + 2 * one  # arguments, result, and those


def test_of_branches_the_greatest_counts() -> None:
    choose = lambda p, x: jax.lax.cond(p, lambda x: (jax.lax.sort(x) @ jax.lax.cumsum(x)).sum(), lambda x: x.sum(), x)
    it = examined(jax.jit(choose), floats(dtype="bool"), floats(64, 64))
    one = 64 * 64 * 4
    made = sum(bytes_of(v.aval) for eqn in it.jaxpr.jaxpr.eqns for v in eqn.outvars)
    assert live_bytes(it).peak == 1 + one + made + 3 * one  # the sorted, the summed and their product at once


def test_the_largest_at_the_peak_have_names_and_lines() -> None:
    def f(x: Any, w: Any) -> Any:
        wide = x @ w  # wide
        return jnp.sort(wide)[0] @ w.T

    it = examined(jax.jit(f, donate_argnums=0), floats(100, 10), floats(10, 200))
    largest = live_bytes(it).largest
    names = {buffer.name: buffer for buffer in largest}
    wide = names["dot_general"]
    assert wide.type == "float32[100,200]" and wide.bytes == 100 * 200 * 4
    assert wide.line.line == marked(f, "wide") and wide.line.file == __file__
    assert names["w"].bytes == 10 * 200 * 4 and names["w"].line == NOWHERE
    assert [buffer.bytes for buffer in largest] == sorted((buffer.bytes for buffer in largest), reverse=True)
    assert all(buffer.begin <= live_bytes(it).peak_step <= buffer.end for buffer in largest)


def mlp(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jax.nn.relu(x @ w)
    return (x**2).mean()


def recurrent(w: Any, xs: Any) -> Any:
    h, sums = jax.lax.scan(lambda h, x: 2 * (jnp.tanh(h @ w + x),), jnp.zeros((64, 128)), xs)
    return (h**2).sum() + sums.mean()


def adam_step(weights: Any, state: Any, x: Any) -> Any:
    loss, slope = jax.value_and_grad(mlp)(weights, x)
    updates, state = optax.adam(1e-3).update(slope, state)
    return optax.apply_updates(weights, updates), state, loss


WEIGHTS = [floats(256, 256)] * 8
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "pairwise": (jax.jit(lambda x: ((x[:, None] - x[None]) ** 2).sum(-1)), (floats(500, 30),)),
    "one_hot": (jax.jit(lambda i, t: jax.nn.one_hot(i, 5000) @ t), (ints(1000), floats(5000, 8))),
    "mlp": (jax.jit(jax.grad(mlp)), (WEIGHTS, floats(2048, 256))),
    "recurrent": (jax.jit(jax.grad(recurrent)), (floats(128, 128), floats(100, 64, 128))),
    "adam": (jax.jit(adam_step, donate_argnums=(0, 1)),
        (WEIGHTS, jax.eval_shape(optax.adam(1e-3).init, WEIGHTS), floats(2048, 256))),
    "cache": (jax.jit(lambda cache, x: jax.lax.dynamic_update_slice(cache, x, (5, 0)), donate_argnums=0),
        (floats(100000, 64), floats(1, 64))),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_peak_is_near_xla_s(name: str) -> None:
    function, args = PROGRAMS[name]
    it = examined(function, *args)
    xla = it.traced.lower().compile().memory_analysis()
    measured = xla.argument_size_in_bytes + xla.output_size_in_bytes + xla.temp_size_in_bytes - xla.alias_size_in_bytes
    assert measured / 1.5 < live_bytes(it).peak < 1.5 * measured


def test_deep_nesting_is_no_recursion() -> None:
    function: Any = lambda x: x @ x
    for _ in range(30 if IS_OLDER else 60):  # jax itself is one there
        function = lambda x, function=function: jax.lax.fori_loop(0, 2, lambda _, y: function(y), x)
    assert live_bytes(examined(jax.jit(function), floats(4, 4))).peak >= 3 * 64
