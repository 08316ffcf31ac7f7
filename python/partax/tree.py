"""Functions of whole trees: `at` and `equal` as in Equinox, functions for layers, groups and sizes; and classes."""

from partax._core import FlatSpec, Static
from partax._pytree.as_equinox import at, equal
from partax._pytree.filters import Filter
from partax._pytree.groups import Summary, SummaryRow, labels, summary
from partax._transforms.loops import stack, unstack

__all__ = [
    "Filter", "FlatSpec", "Static", "Summary", "SummaryRow", "at", "equal", "labels", "stack", "summary", "unstack",
]  # fmt: skip
