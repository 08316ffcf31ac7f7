"""What a call costs on the trees of each library, and of `jax.jit` on them: 400 arrays in 200 nodes.

    python bench/families.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

"in" reads one leaf of all 400 arrays, "out" returns all 400 changed. The floor is `jax.jit` on the same arrays in one
flat tuple. A family whose library is not installed is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

try:
    import jax

    import family_trees
    import partax
    from budgets import OF_VARIABLES, Known, Measure, Row, as_row, run
    from family_trees import Family, Trees
    from interleave import Effort, repeated
    from workloads import FLOOR, JAX_JIT, PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

FORMS = (FLOOR, JAX_JIT, PARTAX)
LIBRARIES = ("equinox", "optax", "flax", "chex", "penzai", "dm-haiku")
IN, IN_OF_NNX, OUT, OUT_OF_NNX, OWN = 1.08, 1.12, 1.12, 1.3, 1.0
"""Budgets: of families that are read natively over the floor, of a class of one's own over `jax.jit`."""
OF_NNX = "nnx"
COMPOSED = ("tree_util.Partial", "flax FrozenDict")
OF_COMPOSED = "a node is several objects, such as the dictionary that it keeps, and CPython makes and frees each"
OF_FUNCTIONS = "the class's own functions, in Python, take most of the time in both"


def new_reader() -> Callable[[Any], jax.Array]:
    """A new function for each form: `jax.jit` of one function twice has one cache."""
    return lambda tree: jax.tree.leaves(tree)[0] + 1


def new_changer() -> Callable[[Any], Any]:
    return lambda tree: jax.tree.map(lambda array: array + 1, tree)


def measure(trees: Trees, out: bool, unit: str, effort: Effort, name: str, budget: float) -> Row:
    tree = trees.build(family_trees.pairs())
    flat = tuple(jax.tree.leaves(tree))
    assert len(flat) // 2 == family_trees.NODES
    new, an_array, of_flat = (
        (new_changer, trees.an_array, lambda arrays: arrays[0])
        if out
        else (new_reader, lambda array: array, lambda array: array)
    )
    ours = partax.filter_jit(new())
    loops = {
        FLOOR: repeated(jax.jit(new()), flat, wait_for=of_flat),
        JAX_JIT: repeated(jax.jit(new()), tree, wait_for=an_array),
        PARTAX: repeated(ours, tree, wait_for=an_array),
    }
    return as_row(name, effort.timings(loops), budget, unit)


def rows_of(family: Family) -> list[tuple[str, float, Measure]]:
    trees = family.trees()
    unit = f"x {JAX_JIT if family.own else FLOOR}"
    budgets = (IN_OF_NNX, OUT_OF_NNX) if family.name.startswith(OF_NNX) else (IN, OUT)
    into, out = (OWN, OWN) if family.own else budgets
    return [
        (f"{family.name}, in", into, partial(measure, trees, False, unit)),
        (f"{family.name}, out", out, partial(measure, trees, True, unit)),
    ]


def main() -> int:
    rows, notes = family_trees.rows_of_installed(rows_of)
    description = "Measure calls on the trees of each library, and of jax.jit on them."
    known = {name: Known(1.6, OF_VARIABLES) for name, _, _ in rows if name.startswith(OF_NNX)}
    known |= {name: Known(1.1, OF_FUNCTIONS) for name, budget, _ in rows if budget == OWN}
    known |= {name: Known(1.25, OF_COMPOSED) for name, _, _ in rows if name.startswith(COMPOSED)}
    return run(rows, FORMS, (JAX_JIT, PARTAX), description, known, notes, LIBRARIES)


if __name__ == "__main__":
    sys.exit(main())
