"""Functions of whole trees: `at` and `equal`, those of Equinox, and what partax has for layers, groups and sizes; and
trees that are static.
"""

from partax._core import FlatSpec, Static
from partax._pytree.as_equinox import at, equal
from partax._pytree.groups import Summary, SummaryRow, labels, summary
from partax._transforms.layers import stack, unstack

__all__ = [
    "FlatSpec",
    "Static",
    "Summary",
    "SummaryRow",
    "at",
    "equal",
    "labels",
    "stack",
    "summary",
    "unstack",
]
