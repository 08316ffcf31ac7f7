"""Predicates on leaves."""

from partax._core import is_array, is_array_like, is_inexact_array, is_inexact_array_like

__all__ = ["is_array", "is_array_like", "is_inexact_array", "is_inexact_array_like"]
