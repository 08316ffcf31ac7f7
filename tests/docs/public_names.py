"""The public names of partax, and the methods of its public classes, for the tests of docstrings and reference."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from typing import Any

from flax_trees import HAS_FLAX

MODULES = ["partax", "partax.debug", "partax.tree", *(["partax.nnx"] if HAS_FLAX else [])]
EQUINOX = ["Accelerated", "accelerate"]  # the other names of partax.equinox are Equinox's or partax's


def public_objects() -> Iterator[tuple[str, Any]]:
    """The public names, and what they stand for."""
    for module in map(importlib.import_module, MODULES):
        yield from ((f"{module.__name__}.{name}", getattr(module, name)) for name in module.__all__)
    if importlib.util.find_spec("equinox") is not None:
        module = importlib.import_module("partax.equinox")
        yield from ((f"partax.equinox.{name}", getattr(module, name)) for name in EQUINOX)


def methods_of(name: str, cls: type) -> Iterator[tuple[str, Any]]:
    """The public functions of a class itself."""
    for attribute, value in vars(cls).items():
        if not attribute.startswith("_") and inspect.isfunction(value):
            yield f"{name}.{attribute}", value


def properties_of(name: str, cls: type) -> Iterator[str]:
    """The public attributes of a class that are computed; those of a dataclass or a named tuple are none."""
    for attribute, value in vars(cls).items():
        is_computed = isinstance(value, property) or inspect.isgetsetdescriptor(value)
        if is_computed and not attribute.startswith("_"):
            yield f"{name}.{attribute}"
