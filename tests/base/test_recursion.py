"""Guards the promise that nothing overflows the C stack: walks within walks and small stacks are RecursionErrors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import pytest

import partax
from partax import _core, filter_jit
from trees import array


class Again:
    """A node that walks the whole tree again when it is read."""

    entered = 0
    walk: Callable[[], object]


def _read_again(node: Again) -> tuple[Any, None]:
    Again.entered += 1
    if Again.entered < 200:
        node.walk()
    return (), None


jax.tree_util.register_pytree_node(Again, _read_again, lambda *_: Again())


@pytest.mark.parametrize(
    "operation",
    [
        _core.flatten,
        lambda tree: partax.partition(tree, partax.is_array),
        lambda tree: partax.flat_partition(tree, partax.is_array),
        lambda tree: filter_jit(lambda tree: 1)(tree),
    ],
    ids=["flatten", "partition", "flat_partition", "call"],
)
def test_deep_walks_within_walks_are_a_recursion_error(operation: Callable[[Any], object]) -> None:
    tree: Any = Again()
    tree.walk = lambda: operation(tree)
    for _ in range(1900):
        tree = [tree]
    Again.entered = 0
    with pytest.raises(RecursionError, match="this thread's stack has room for"):
        operation(tree)
    assert Again.entered < 200
    assert filter_jit(lambda x: x + 1)(1.0) == 2


def test_a_thread_with_a_small_stack_gets_a_recursion_error() -> None:
    x = array(1)
    tree: Any = [x]
    for _ in range(1900):
        tree = [tree]
    leaves, spec = _core.flatten(tree)
    filters = [partax.is_array] * 3
    for _ in range(1900):
        filters = [partax.not_(filters[0]), partax.any_of(filters[1]), partax.all_of(filters[2], True)]
    # Without room for it, a tree matches nothing.
    operations: list[Callable[[], object]] = [
        lambda: _core.flatten(tree),
        lambda: partax.partition(tree, partax.is_array),
        lambda: spec.rebuild(leaves),
        lambda: partax.combine(tree, None, [[None]]),
        lambda: partax.tree.map(lambda *leaves: leaves, tree, [tree]),
        *(partial(partax.filter, [x], deep) for deep in filters),
    ]
    seen: list[Any] = [spec.match(tree)]

    def run() -> None:
        seen.append(spec.match(tree))
        for operation in operations:
            try:
                operation()
            except RecursionError as error:
                seen.append(str(error))

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    there, here, *errors = seen
    assert there == [x] and here is None
    assert len(errors) == len(operations) and all("this thread's stack has room for" in error for error in errors)
