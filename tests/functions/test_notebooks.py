"""Guards the promise that a cell of a notebook which is run again is traced again only if something that it reads has
changed, although it defines its functions again.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from counting import TraceCounter

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")
x = np.arange(3, dtype=np.float32)
Run = Callable[[str], Any]


class Notebook:
    """Runs cells in one namespace, as IPython does; `JIT` in a cell is what compiles."""

    def __init__(self, jit: Any) -> None:
        self.traces = TraceCounter()
        self.space: dict[str, Any] = {"__name__": "__main__", "JIT": jit, "tick": self.traces.tick, "x": x}
        self.space |= {"jax": jax, "jnp": jnp, "partax": partax}
        self._number = 0

    def run(self, cell: str) -> None:
        self._number += 1
        file = f"/tmp/ipykernel_7/{hash(cell) & 0xFFFFFFFF}.py"  # IPython's names follow from the source
        exec(compile(cell, file, "exec"), self.space)


SETUP = "import dataclasses\nLR = 0.5\n"
HELPER = "def loss(w, x):\n    return jnp.sum((w * x) ** 2) * LR\n"
STEP = "@JIT\ndef step(w, x):\n    tick()\n    return w - jax.grad(loss)(w, x)\n"
CLASS = (
    "class Model:\n    scale = 1.0\n    def __call__(self, w, x):\n        return w * x * self.scale\nmodel = Model()\n"
)
OF_CLASS = "@JIT\ndef step(w, x):\n    tick()\n    return model(w, x)\n"
USE = "result = step(jnp.ones(3), x)\n"


@pytest.mark.parametrize(
    ("cells", "again", "ours", "theirs"),
    [
        pytest.param([SETUP, HELPER, STEP, USE], [USE], 1, 1, id="only the call"),
        pytest.param([SETUP, HELPER, STEP, USE], [STEP, USE], 1, 2, id="the step"),
        pytest.param([SETUP, HELPER, STEP, USE], [HELPER, STEP, USE], 1, 2, id="the helper and the step"),
        pytest.param([SETUP, HELPER, STEP, USE], [SETUP, HELPER, STEP, USE] * 3, 1, 4, id="all cells"),
        pytest.param([SETUP, HELPER, STEP, USE], ["LR = 2.0\n", STEP, USE], 2, 2, id="another constant"),
        pytest.param(
            [SETUP, HELPER, STEP, USE], [HELPER.replace("** 2", "** 4"), STEP, USE], 2, 2, id="another helper"
        ),
        pytest.param([SETUP, HELPER, STEP, USE], [HELPER, STEP.replace("w - ", "w + "), USE], 2, 2, id="another step"),
        pytest.param([SETUP, CLASS, OF_CLASS, USE], [OF_CLASS, USE], 1, 2, id="a step with an object"),
        pytest.param([SETUP, CLASS, OF_CLASS, USE], [CLASS, OF_CLASS, USE], 2, 2, id="the class"),
        pytest.param(
            [SETUP, CLASS, OF_CLASS, USE], [CLASS.replace("1.0", "2.0"), OF_CLASS, USE], 2, 2, id="another class"
        ),
        pytest.param(
            [SETUP, CLASS, OF_CLASS, USE], ["model.scale = 3.0\n", OF_CLASS, USE], 2, 2, id="another attribute"
        ),
        pytest.param(
            [SETUP, HELPER, STEP, USE],
            ["LR = 2.0\n", STEP, USE, "LR = 0.5\n", STEP, USE],
            2,
            3,
            id="a constant and back",
        ),
    ],
)
def test_cells_that_are_run_again(cells: list[str], again: list[str], ours: int, theirs: int) -> None:
    mine, jitted = Notebook(partax.filter_jit), Notebook(jax.jit)
    for cell in (*cells, *again):
        for notebook in (mine, jitted):
            notebook.run(cell)
    np.testing.assert_array_equal(mine.space["result"], jitted.space["result"])
    assert (mine.traces.count, jitted.traces.count) == (ours, theirs)


def test_the_reason_names_the_constant() -> None:
    notebook = Notebook(partax.filter_jit)
    for cell in (SETUP, HELPER, STEP, USE, "LR = 3.0\n", STEP, USE):
        notebook.run(cell)
    (trace,) = notebook.space["step"].report().traces[-1:]
    assert "step at" in trace.reason and "'LR'" in trace.reason, trace.reason
