"""What `at` and `equal` of `partax.tree` cost, and Equinox's, on a large model.

    python bench/trees.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

The model is a 64-layer MLP with its Adam state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import repeat
from typing import Any

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    import workloads as work
    from budgets import Known, Measure, Row, as_row, run
    from interleave import Effort, Loop, interleave
    from partax import tree
    from workloads import EQUINOX, PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

FORMS = (PARTAX, EQUINOX)
LIBRARIES = ("equinox", "optax")
Forms = Mapping[str, Callable[[], Any]]


def calling(call: Callable[[], Any]) -> Loop:
    """Each time the result is dropped before the next call."""

    def loop(count: int) -> None:
        for _ in repeat(None, count):
            call()

    return loop


def model_and_state() -> Any:
    model = work.mlp(depth=64, width=16)
    return model, work.adam_state(optax.adam(1e-3), model)


def compare(make: Callable[[Any], Forms], of: Callable[[], Any], effort: Effort, name: str, budget: float) -> Row:
    forms = make(of())
    loops = {form: calling(call) for form, call in forms.items()}
    timings = interleave(loops, rounds=effort.slow_rounds(31), sample_seconds=2e-3 if effort.quick else 2e-2)
    (peer,) = forms.keys() - {PARTAX}
    return as_row(name, timings, budget, f"x {peer}")


def replaced(where: Callable[[Any], Any]) -> Callable[[Any], Forms]:
    def forms(it: Any) -> Forms:
        new = jnp.ones(3)
        return {PARTAX: lambda: tree.at(where, it, new), EQUINOX: lambda: eqx.tree_at(where, it, new)}

    return forms


def compared(it: Any) -> Forms:
    other = jax.tree.map(lambda leaf: leaf + 0 if eqx.is_array(leaf) else leaf, it)
    assert tree.equal(it, other) and eqx.tree_equal(it, other)
    return {PARTAX: lambda: tree.equal(it, other), EQUINOX: lambda: bool(eqx.tree_equal(it, other))}


ROWS: list[tuple[str, float, Measure]] = [
    ("at an array", 0.1, partial(compare, replaced(lambda t: t[0].layers[30].weight), model_and_state)),
    ("at a layer", 0.1, partial(compare, replaced(lambda t: t[0].layers[30]), model_and_state)),
    ("at a function", 0.1, partial(compare, replaced(lambda t: t[0].activation), model_and_state)),
    ("equal", 0.2, partial(compare, compared, model_and_state)),
]


def main() -> int:
    description = "Measure functions of partax.tree and those of Equinox."
    in_python = "the leaves are wrapped and looked up in Python; only flattening and unflattening are native"
    known = {name: Known(0.2, in_python) for name, *_ in ROWS if name != "equal"}
    known["equal"] = Known(0.25, "NumPy compares each pair of arrays in both")
    return run(ROWS, FORMS, (PARTAX,), description, known, libraries=LIBRARIES)


if __name__ == "__main__":
    sys.exit(main())
