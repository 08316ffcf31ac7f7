"""The doctor samples a trace, and says which of the user's lines and attributes its time goes to."""

import dataclasses
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from examining import floats, marked
from flax import nnx
from test_script import doctor

import partax
from partax.reports import TraceProfile


class Table:
    @property
    def shape(self) -> tuple[int, ...]:
        time.sleep(0.02)  # slow
        return (3,)


def loops(x: Any) -> Any:
    for _ in range(300):
        x = jnp.cos(x)  # cosine
    return x * (sum(i * i for i in range(4_000_000)) % 7)  # here


def reads(x: Any) -> Any:
    table = Table()
    for _ in range(10):
        x = x + table.shape[0]  # here
    return x


def profile(function: Any) -> TraceProfile:
    result: Any = partax.doctor(function, floats(), trace_profile=True).trace_profile
    assert abs(sum(cost.share for cost in result.lines) - 1) < 0.1
    return result


@pytest.mark.parametrize("wrap", [partax.filter_jit, jax.jit, nnx.jit, jax.grad])
def test_the_line_that_takes_most_of_the_trace_comes_first(wrap: Any) -> None:
    first, *more = profile(wrap(lambda x: loops(x))).lines
    assert (first.file, first.line) == (__file__, marked(loops)) and first.share > 0.5 and first.seconds > 0.05
    assert (marked(loops, "cosine"), "`jnp.cos`") in [(cost.line, cost.name) for cost in more]


@pytest.fixture(params=["main", "other"])
def run(request: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        yield (lambda do: do()) if request.param == "main" else (lambda do: pool.submit(do).result())


def test_traces_inside_a_trace_have_attributes_and_leave_it_sampled(run: Any) -> None:
    def nests(x: Any) -> Any:
        (shape,) = profile(jax.jit(lambda x: reads(x))).attributes
        assert (shape.name, shape.line) == ("attribute `shape` of `Table`", marked(reads)) and shape.share > 0.5
        with pytest.raises(TypeError, match="float"):
            partax.doctor(lambda x: float(x), x, trace_profile=True)
        time.sleep(0.3)  # outer
        return x

    outer, *after = run(lambda: (profile(nests), sys.getprofile(), signal.getitimer(signal.ITIMER_REAL)))
    shares = {cost.source.partition("# ")[2]: cost.share for cost in outer.lines}
    assert shares["outer"] > 0.3 and shares["slow"] > 0.1 and after == [None, (0, 0)], (outer, after)
    assert outer.attributes[0].name in str(outer) and dataclasses.asdict(outer)["samples"]


def test_a_trace_without_samples_says_why() -> None:
    function = jax.jit(lambda x: x)
    assert partax.doctor(function, floats()).trace_profile is None
    assert "(0 samples) (it was traced before" in str(partax.doctor(function, floats(), trace_profile=True))


SCRIPT = """
import time, jax, partax
class Table:
    @property
    def size(self): return time.sleep(0.1) or 2
@jax.jit
def of_jax(x): return x * Table().size
@partax.filter_jit
def of_partax(x): return time.sleep(0.2) or of_jax(x)
of_jax(1.0), of_partax(2), of_partax(3.0)
"""


def test_each_function_of_a_script_has_its_own(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--trace-profile", "--html", "page.html", "script.py", script=SCRIPT)
    of_jax, of_partax = (done.stderr.partition(f"\n{name} (")[2].split("\n\n")[1] for name in ("of_jax", "of_partax"))
    assert "time.sleep(0.1)" in of_jax and "attribute `size` of `Table`" in of_jax
    assert "time.sleep(0.2)" in of_partax.splitlines()[2]
    assert (tmp_path / "page.html").read_text().count("tracing took") == 2
