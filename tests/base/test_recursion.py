"""Guards the promise that nothing overflows the C stack: walks within walks and small stacks are RecursionErrors."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
import pytest

import partax
from deep_trees import nested
from partax import _core, filter_jit


class Again:
    """A node that walks the whole tree again when it is read."""

    entered = 0
    walk: Callable[[], object]

    def read(self) -> tuple[Any, None]:
        self.entered += 1
        if self.entered < 200:
            self.walk()
        return (), None


jax.tree_util.register_pytree_node(Again, Again.read, lambda *_: Again())


FILTERS = [partax.not_, partax.any_of, lambda it: partax.all_of(it, True)]


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
    again = Again()
    tree: Any = functools.reduce(lambda tree, _: [tree], range(1900), again)
    again.walk = lambda: operation(tree)
    with pytest.raises(RecursionError, match="this thread's stack has room for"):
        operation(tree)
    assert again.entered < 200
    assert filter_jit(lambda x: x + 1)(1.0) == 2


def test_a_thread_with_a_small_stack_gets_a_recursion_error() -> None:
    tree = nested(lambda tree: [tree], 1900)
    leaves, spec = _core.flatten(tree)
    deep = [functools.reduce(lambda it, _: wrap(it), range(1900), partax.is_array) for wrap in FILTERS]
    # Without room for it, a tree matches nothing.
    operations: list[Callable[[], object]] = [
        lambda: _core.flatten(tree),
        lambda: partax.partition(tree, partax.is_array),
        lambda: spec.rebuild(leaves),
        lambda: partax.combine(tree, None, [[None]]),
        lambda: partax.tree.map(lambda *leaves: leaves, tree, [tree]),
        *(functools.partial(partax.filter, leaves, it) for it in deep),
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
    assert there == leaves and here is None
    assert len(errors) == len(operations) and all("this thread's stack has room for" in error for error in errors)
