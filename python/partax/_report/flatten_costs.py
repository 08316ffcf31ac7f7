"""What the registered flatten functions of node types take, measured once for each type."""

import time
import weakref
from collections.abc import Iterable
from typing import Any

import jax

from partax._jax.nodes import flatten_one_level

_flatten_costs: weakref.WeakKeyDictionary[type, float] = weakref.WeakKeyDictionary()


def flatten_microseconds(kind: type) -> float:
    """What the registered flatten function of a node type took when it was first seen in a trace."""
    return _flatten_costs.get(kind, 0.0)


def time_flatten_functions(kinds: Iterable[type], arguments: tuple[Any, ...]) -> None:
    """Measures those of the registered types in a call that are new, on the nodes among its arguments."""
    for kind in [kind for kind in kinds if kind not in _flatten_costs]:  # not by iterating over what others may add to
        nodes = jax.tree.leaves(arguments, is_leaf=lambda node, kind=kind: type(node) is kind)
        node = next((node for node in nodes if type(node) is kind), None)
        costs: list[float] = []
        for _ in range(3 if node is not None else 0):
            start = time.perf_counter()
            flatten_one_level(node)
            costs.append(time.perf_counter() - start)
        _flatten_costs[kind] = 1e6 * min(costs, default=0.0)
