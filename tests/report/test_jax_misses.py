"""Guards that `python -m partax explain` tells of jax.jit and nnx.jit in one line for each trace, as of filter_jit."""

from __future__ import annotations

import pathlib

import pytest

from partax._report.jax_misses import one_line
from processes import python

OF_FLAX = """
import jax.numpy as jnp
from flax import nnx

@nnx.jit
def step(model, x):
    return model(x)

model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
step(model, jnp.ones((1, 2)))
step(model, jnp.ones((3, 2)))
"""


def test_nnx_jit(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("flax")
    (tmp_path / "script.py").write_text(OF_FLAX)
    done = python("-m", "partax", "explain", "script.py", cwd=tmp_path)
    told = done.stderr.partition("partax: what has been")[0].splitlines()
    assert [line for line in told if " step: " in line] == [
        "script.py:10 step: trace 1, the first",
        "script.py:11 step: trace 2, because x: float32[1,2] -> float32[3,2]",
    ]


def test_a_static_value_and_what_jax_does_not_tell() -> None:
    start = "TRACING CACHE MISS at x.py:1 (<module>):\n  for g defined at x.py:1\n"
    first = one_line(f"{start}  never seen function:\n")
    kind = "<class 'jax._src.tree_util.Static'> with pytree metadata"
    now, before = f"{kind} Static(val=3)", f"{kind} Static(val=2)"
    static = one_line(f"{start}  * at input path [1]['k'], now {now} and before {before}, so it does not match\n")
    changed = "now dict with 1 child and before dict with 2 children, so it does not match"
    places = [one_line(f"{start}  * at input path {place}, {changed}\n") for place in ("[1]", "[1][0]")]
    untold = one_line(f"{start}  cache miss explanation unavailable\n")
    lines = [first, static, *places, untold]
    ends = [
        "trace 1, the first", "trace 2, because k: 2 -> 3",
        "trace 3, because the keyword arguments: dict with 2 children -> dict with 1 child",
        "trace 4, because kwargs[0]: dict with 2 children -> dict with 1 child",
        "trace 5, for a reason that jax does not tell",
    ]  # fmt: skip
    assert [line.partition(" g: ")[2] for line in lines if line] == ends
    assert one_line("Finished tracing") is None
