"""Guards the promise that nothing overflows the C stack: walks within walks and small stacks are RecursionErrors."""

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


OPERATIONS: dict[str, Callable[[Any], object]] = {
    "flatten": _core.flatten,
    "partition": lambda tree: partax.partition(tree, partax.is_array),
    "flat_partition": lambda tree: partax.flat_partition(tree, partax.is_array),
    "call": lambda tree: filter_jit(lambda tree: 1)(tree),
    "combine": lambda tree: partax.combine(tree, None, [[None]]),
    "at": lambda tree: partax.tree.at(lambda tree: tree, tree, 1),
}


@pytest.mark.parametrize("name", ["flatten", "partition", "flat_partition", "call"])
def test_deep_walks_within_walks_are_a_recursion_error(name: str) -> None:
    again, operation = Again(), OPERATIONS[name]
    tree: Any = functools.reduce(lambda tree, _: [tree], range(1900), again)
    again.walk = lambda: operation(tree)
    with pytest.raises(RecursionError, match="this thread's stack has room for"):
        operation(tree)
    assert again.entered < 200
    assert filter_jit(lambda x: x + 1)(1.0) == 2


def test_a_thread_with_a_small_stack_gets_a_recursion_error() -> None:
    tree = nested(lambda tree: [tree], 1900)
    deep_filter = functools.reduce(lambda f, _: ~(f & True), range(1900), partax.is_array)
    operations = [functools.partial(OPERATIONS[name], tree) for name in ("flatten", "partition", "combine", "at")]
    operations.append(lambda: partax.filter([1], deep_filter))
    errors: list[str] = []

    def run() -> None:
        for operation in operations:
            try:
                operation()
            except RecursionError as error:
                errors.append(str(error))

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert len(errors) == len(operations) and all("this thread's stack has room for" in error for error in errors)
