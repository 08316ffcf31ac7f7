"""What it costs to split trees and to put them together: every budget of partax, measured in turns with its peers.

    python bench/partition.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

The contenders of a row take turns (see interleave.py) on one tree. Where a library has no such function, it is timed on
what its users write instead: for jax.tree, flattening alone, or flattening with paths into a dictionary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

try:
    import equinox as eqx
    import inox
    import jax
    import jax.numpy as jnp
    import optax

    import partax
    import workloads as work
    from budgets import Known, Measure, Row, as_row, run
    from interleave import Effort, Loop, Timing, interleave, repeated
    from partax import by_path, is_array
    from workloads import EQUINOX, FLOOR, PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

INOX = "inox"
JAX_TREE = "jax.tree"
JAX_JIT_SPEC = "jax.jit, spec"
ONE_FILTER = "1 filter"
IS_ARRAY = "is_array"
FORMS = (PARTAX, EQUINOX, INOX, JAX_TREE, ONE_FILTER, IS_ARRAY, FLOOR, JAX_JIT_SPEC)

STATIC_LEAVES = 100_000
SIZES = tuple(10**power for power in range(2, 7))
FILTER_COUNTS = (1, 2, 4, 8, 16, 32, 64)


def calling(fn: Callable[..., Any], *args: Any, **options: Any) -> Loop:
    """Call `fn` on the same arguments, each time letting go of the result before the next call."""
    call = partial(fn, *args, **options)

    def loop(count: int) -> None:
        for _ in repeat(None, count):
            call()

    return loop


def timings(effort: Effort, loops: Mapping[str, Loop]) -> dict[str, Timing]:
    """Few rounds, because the slowest contenders take up to a second for a call."""
    return interleave(loops, rounds=effort.slow_rounds(15), sample_seconds=2e-3 if effort.quick else 2e-2)


def in_two(effort: Effort, name: str, budget: float, *, unit: str) -> Row:
    tree = work.static_list(STATIC_LEAVES)
    loops = {
        PARTAX: calling(partax.partition, tree, is_array),
        EQUINOX: calling(eqx.partition, tree, eqx.is_array),
        JAX_TREE: calling(jax.tree.flatten, tree),
    }
    return as_row(name, timings(effort, loops), budget, unit)


def model_and_state() -> Any:
    model = work.mlp(depth=64, width=16)
    return model, work.adam_state(optax.adam(1e-3), model)


def long_list() -> Any:
    return work.static_list(STATIC_LEAVES)


def five_filters(effort: Effort, name: str, budget: float, *, fifth: Any, make: Callable[[], Any] = long_list) -> Row:
    tree = make()
    filters = (is_array, str, float & is_array, partax.is_inexact_array, fifth)
    loops = {
        PARTAX: calling(partax.partition, tree, *filters),
        ONE_FILTER: calling(partax.partition, tree, is_array),
    }
    return as_row(name, timings(effort, loops), budget, f"x {ONE_FILTER}")


def over_is_array(
    effort: Effort, name: str, budget: float, *, by: Any, leaves: Callable[[int], list[Any]] = work.mixed_list
) -> Row:
    tree = leaves(STATIC_LEAVES)
    loops = {
        PARTAX: calling(partax.partition, tree, by),
        IS_ARRAY: calling(partax.partition, tree, is_array),
    }
    return as_row(name, timings(effort, loops), budget, f"x {IS_ARRAY}")


def in_dicts(effort: Effort, name: str, budget: float, *, rest: str) -> Row:
    tree = work.static_list(STATIC_LEAVES)

    def with_paths() -> dict[str, Any]:
        return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}

    loops = {
        PARTAX: calling(partax.flat_partition, tree, is_array, rest=rest),
        INOX: calling(inox.tree.partition, tree, jax.Array),
        JAX_TREE: calling(with_paths),
    }
    return as_row(name, timings(effort, loops), budget, "ms")


def jitted_call(effort: Effort, name: str, budget: float) -> Row:
    tree = work.static_list(STATIC_LEAVES)
    spec, arrays = partax.flat_partition(tree, is_array, rest="static")

    def of_dict(arrays: dict[str, jax.Array], spec: partax.tree.FlatSpec) -> jax.Array:
        return partax.flat_combine(spec, arrays)[0] + 1

    loops = {
        FLOOR: repeated(jax.jit(lambda flat: flat[0] + 1), (tree[0],), wait_for=lambda out: out),
        JAX_JIT_SPEC: repeated(jax.jit(of_dict), arrays, spec, wait_for=lambda out: out),
        PARTAX: repeated(partax.filter_jit(of_dict), arrays, spec, wait_for=lambda out: out),
    }
    return as_row(name, effort.timings(loops), budget, f"x {FLOOR}")


def round_trip(effort: Effort, name: str, budget: float) -> Row:
    tree = model_and_state()

    def there_and_back(partition: Callable[..., Any], combine: Callable[..., Any], f: Any) -> Loop:
        def loop(count: int) -> None:
            for _ in repeat(None, count):
                combine(*partition(tree, f))

        return loop

    def by_jax() -> Any:
        leaves, treedef = jax.tree.flatten(tree)
        return jax.tree.unflatten(treedef, leaves)

    def by_inox() -> Any:
        return inox.tree.combine(*inox.tree.partition(tree, jax.Array))

    loops = {
        PARTAX: there_and_back(partax.partition, partax.combine, is_array),
        EQUINOX: there_and_back(eqx.partition, eqx.combine, eqx.is_array),
        INOX: calling(by_inox),
        JAX_TREE: calling(by_jax),
    }
    return as_row(name, timings(effort, loops), budget, f"x {EQUINOX}")


def growth(
    effort: Effort,
    name: str,
    budget: float,
    *,
    call_of: Callable[[int], Loop],
    sizes: Sequence[int],
    per: str,
    peer_of: Callable[[int], Loop] | None = None,
) -> Row:
    """How much dearer one more becomes as the number grows: the dearest over the cheapest before it.

    Constant costs, which make the smallest numbers dear, do not count; growth faster than linear does. With a peer that
    is known to be linear, the costs are counted as multiples of its own, so that the caches do not count either.
    """
    loops = {str(size): call_of(size) for size in sizes}
    if peer_of is not None:
        loops |= {f"{size}, peer": peer_of(size) for size in sizes}
    found = timings(effort, loops)
    # The least disturbed rounds: contenders of such different lengths are not disturbed alike.
    each = [found[str(size)].fastest / size for size in sizes]
    compared = each
    if peer_of is not None:
        compared = [found[str(size)].fastest / found[f"{size}, peer"].fastest for size in sizes]
    worst = max(dear / min(compared[: i + 1]) for i, dear in enumerate(compared))
    shown = ", ".join(f"{size:,}: {seconds * 1e9:,.0f}" for size, seconds in zip(sizes, each, strict=True))
    return as_row(name, found, budget, "max/min", f"ns a {per}: {shown}", measured=worst)


def leaves_in_trees(size: int) -> Loop:
    return calling(partax.partition, work.static_list(size), is_array)


def dict_in_python(size: int) -> Loop:
    leaves = work.static_list(size)
    return calling(lambda: {f"[{i}]": leaf for i, leaf in enumerate(leaves)})


def leaves_in_dicts(size: int) -> Loop:
    return calling(partax.flat_partition, work.static_list(size), is_array)


def leaves_in_spec(size: int) -> Loop:
    return calling(partax.flat_partition, work.static_list(size), is_array, rest="static")


def many_filters(size: int) -> Loop:
    tree = [jnp.ones(()), *range(1_000)]
    return calling(partax.partition, tree, *(by_path(str(i)) for i in range(size)))


ONE_AND_STATICS = f"list of 1 array and {STATIC_LEAVES:,} static leaves"
# The budget of growth leaves room for the caches: ten thousand leaves are at hand, a million come from memory and cost
# about twice as much each, in jax.tree too. The keys of a dict suffer more (five times as much, in Python too), so that
# row is measured with one that Python makes.
OVER_FLATTEN = f"partition, {ONE_AND_STATICS}, over jax.tree.flatten"
ALONE = f"partition, {ONE_AND_STATICS}"
FIVE = "partition by 5 filters, same list"
BY_CLASS = f"partition by eqx.nn.Linear (an abstract metaclass), {STATIC_LEAVES:,} static leaves of ten types in turns"
BY_FUNCTION = f"partition by equinox.is_array, {STATIC_LEAVES:,} static leaves of ten types in turns"
IN_SPEC = 'flat_partition with rest="static", same list'
IN_DICT = f"flat_partition, same list ({STATIC_LEAVES:,} paths)"
PATHS = "the path of each leaf is written in Python, in 0.5 to 1 µs a leaf"
KNOWN = {
    ALONE: Known(6.0, "that is 40 ns a leaf, and jax.tree.flatten takes nearly as long"),
    OVER_FLATTEN: Known(
        1.5, "jax 0.12 flattens a list in a third of the time that jax 0.10 takes; partition also makes two lists"
    ),
    FIVE: Known(6.0, "each filter is asked about each leaf"),
    BY_CLASS: Known(8.0, "the metaclass is asked about each leaf, in Python"),
    BY_FUNCTION: Known(8.0, "Equinox's function is called for each leaf"),
    IN_SPEC: Known(150.0, PATHS),
    IN_DICT: Known(150.0, PATHS),
}

ROWS: tuple[tuple[str, float, Measure], ...] = (
    (ALONE, 3.0, partial(in_two, unit="ms")),
    (OVER_FLATTEN, 0.6, partial(in_two, unit=f"x {JAX_TREE}")),
    (FIVE, 2.0, partial(five_filters, fifth=(bytes, dict))),
    (
        "partition by 5 filters, one of them a path, a 64-layer MLP and its Adam state",
        8.0,
        partial(five_filters, fifth=by_path("0/**/weight"), make=model_and_state),
    ),
    (
        f"partition by is_array_like, {STATIC_LEAVES:,} static leaves of ten types in turns",
        1.5,
        partial(over_is_array, by=partax.is_array_like),
    ),
    (
        f"partition by is_array_like, {STATIC_LEAVES:,} objects with dictionaries",
        1.5,
        partial(over_is_array, by=partax.is_array_like, leaves=work.object_list),
    ),
    (BY_CLASS, 1.5, partial(over_is_array, by=eqx.nn.Linear)),
    (BY_FUNCTION, 1.5, partial(over_is_array, by=eqx.is_array)),
    (IN_SPEC, 3.0, partial(in_dicts, rest="static")),
    (IN_DICT, 25.0, partial(in_dicts, rest="dict")),
    ("a jitted call with (arrays, spec) of that list", 1.10, jitted_call),
    ("partition + combine of a 64-layer MLP and its Adam state", 0.2, round_trip),
    (
        "growth of partition with leaves",
        3.0,
        partial(growth, call_of=leaves_in_trees, sizes=SIZES, per="leaf"),
    ),
    (
        "growth of flat_partition with leaves, over a dict comprehension's",
        2.0,
        partial(growth, call_of=leaves_in_dicts, peer_of=dict_in_python, sizes=SIZES, per="leaf"),
    ),
    (
        'growth of flat_partition with leaves, rest="static"',
        3.0,
        partial(growth, call_of=leaves_in_spec, sizes=SIZES, per="leaf"),
    ),
    (
        "growth of partition with filters",
        3.0,
        partial(growth, call_of=many_filters, sizes=FILTER_COUNTS, per="filter"),
    ),
)


if __name__ == "__main__":
    ratios_of = (EQUINOX, INOX, JAX_TREE, JAX_JIT_SPEC)
    description = "Measure what splitting trees costs, and what it costs with Equinox, Inox and jax.tree."
    sys.exit(run(ROWS, FORMS, ratios_of, description, KNOWN))
