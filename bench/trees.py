"""What `partax.tree` costs beside jax.tree and Equinox, on a large model and on the trees of each library.

    python bench/trees.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

The model is a 64-layer MLP with its Adam state; the function that is mapped returns its argument. The trees of the
families are those of families.py: 400 arrays in 200 nodes. A family whose library is not installed is left out.
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

    import family_trees
    import workloads as work
    from budgets import Known, Measure, Row, as_row, run
    from family_trees import Family
    from interleave import Effort, Loop, interleave
    from partax import tree
    from workloads import EQUINOX, PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

JAX_TREE = "jax.tree"
FORMS = (PARTAX, JAX_TREE, EQUINOX)
LIBRARIES = ("equinox", "optax", "flax", "chex", "penzai", "dm-haiku")
NEVER_SLOWER = 1.0
Forms = Mapping[str, Callable[[], Any]]


def same(leaf: Any) -> Any:
    return leaf


def first_of(leaf: Any, other: Any) -> Any:
    return leaf


def with_path(path: Any, leaf: Any) -> Any:
    return leaf


def calling(call: Callable[[], Any]) -> Loop:
    """Each time the result is dropped before the next call."""

    def loop(count: int) -> None:
        for _ in repeat(None, count):
            call()

    return loop


def model_and_state() -> Any:
    model = work.mlp(depth=64, width=16)
    return model, work.adam_state(optax.adam(1e-3), model)


def beside(make: Callable[[Any], Forms], of: Callable[[], Any], effort: Effort, name: str, budget: float) -> Row:
    forms = make(of())
    loops = {form: calling(call) for form, call in forms.items()}
    timings = interleave(loops, rounds=effort.slow_rounds(31), sample_seconds=2e-3 if effort.quick else 2e-2)
    (peer,) = forms.keys() - {PARTAX}
    return as_row(name, timings, budget, f"x {peer}")


def mapped(it: Any) -> Forms:
    return {PARTAX: lambda: tree.map(same, it), JAX_TREE: lambda: jax.tree.map(same, it)}


def mapped_beside(it: Any) -> Forms:
    other = jax.tree.map(same, it)
    return {PARTAX: lambda: tree.map(first_of, it, other), JAX_TREE: lambda: jax.tree.map(first_of, it, other)}


def mapped_with_path(it: Any) -> Forms:
    return {
        PARTAX: lambda: tree.map_with_path(with_path, it),
        JAX_TREE: lambda: jax.tree.map_with_path(with_path, it),
    }


def leaves(it: Any) -> Forms:
    return {PARTAX: lambda: tree.leaves(it), JAX_TREE: lambda: jax.tree.leaves(it)}


def there_and_back(it: Any) -> Forms:
    def by_partax() -> Any:
        found, structure = tree.flatten(it)
        return tree.unflatten(structure, found)

    def by_jax() -> Any:
        found, structure = jax.tree.flatten(it)
        return jax.tree.unflatten(structure, found)

    return {PARTAX: by_partax, JAX_TREE: by_jax}


def structures(it: Any) -> Forms:
    ours, theirs = tree.structure(it), jax.tree.structure(it)
    return {PARTAX: lambda: tree.structure(it) == ours, JAX_TREE: lambda: jax.tree.structure(it) == theirs}


def replaced(where: Callable[[Any], Any]) -> Callable[[Any], Forms]:
    def forms(it: Any) -> Forms:
        new = jnp.ones(3)
        return {PARTAX: lambda: tree.at(where, it, new), EQUINOX: lambda: eqx.tree_at(where, it, new)}

    return forms


def compared(it: Any) -> Forms:
    other = jax.tree.map(lambda leaf: leaf + 0 if eqx.is_array(leaf) else leaf, it)
    assert tree.equal(it, other) and eqx.tree_equal(it, other)
    return {PARTAX: lambda: tree.equal(it, other), EQUINOX: lambda: bool(eqx.tree_equal(it, other))}


def rows_of(family: Family) -> list[tuple[str, float, Measure]]:
    trees = family.trees()

    def build() -> Any:
        return trees.build(family_trees.pairs())

    works = {"map": mapped, "map of two": mapped_beside, "leaves": leaves, "flatten, unflatten": there_and_back}
    return [(f"{work}, {family.name}", NEVER_SLOWER, partial(beside, make, build)) for work, make in works.items()]


def a_list() -> Any:
    return work.static_list(100_000)


ROWS: list[tuple[str, float, Measure]] = [
    ("map", 0.25, partial(beside, mapped, model_and_state)),
    ("map of two trees", 0.25, partial(beside, mapped_beside, model_and_state)),
    ("map_with_path", 0.75, partial(beside, mapped_with_path, model_and_state)),
    ("leaves", 0.1, partial(beside, leaves, model_and_state)),
    ("flatten, unflatten", 0.25, partial(beside, there_and_back, model_and_state)),
    ("structure, compared", 0.25, partial(beside, structures, model_and_state)),
    ("at an array", 0.1, partial(beside, replaced(lambda t: t[0].layers[30].weight), model_and_state)),
    ("at a layer", 0.1, partial(beside, replaced(lambda t: t[0].layers[30]), model_and_state)),
    ("at a function", 0.1, partial(beside, replaced(lambda t: t[0].activation), model_and_state)),
    ("equal", 0.2, partial(beside, compared, model_and_state)),
    ("map, list of 100,000", NEVER_SLOWER, partial(beside, mapped, a_list)),
    ("leaves, list of 100,000", NEVER_SLOWER, partial(beside, leaves, a_list)),
    ("map, list of 3", NEVER_SLOWER, partial(beside, mapped, lambda: [1, 2, 3])),
    ("leaves, list of 3", NEVER_SLOWER, partial(beside, leaves, lambda: [1, 2, 3])),
]


KNOWN = {
    "map_with_path": Known(
        0.85, "the paths are jax's, which asks each Equinox module in Python: four fifths of the call"
    )
}


def main() -> int:
    rows, notes = family_trees.rows_of_installed(rows_of)
    description = "Measure the functions of partax.tree beside those of jax.tree and Equinox."
    return run([*ROWS, *rows], FORMS, (PARTAX,), description, KNOWN, notes=notes, libraries=LIBRARIES)


if __name__ == "__main__":
    sys.exit(main())
