"""Guards the promise that the reference is complete: each public name, method and property of partax is on one of its
pages, once, and nothing is there that partax does not have."""

from __future__ import annotations

import importlib
import pathlib
import re
from collections import Counter
from typing import Any

import pytest
from public_names import methods_of, properties_of, public_objects

from flax_trees import HAS_FLAX
from partax._core import BoundFunction, JitFunction

REFERENCE = pathlib.Path(__file__).parents[2] / "docs" / "reference"
# What filter_jit and its `bind` return, which have no public names.
WRAPPER, BOUND = "partax._core.JitFunction", "partax._core.BoundFunction"
DIRECTIVE = re.compile(r"^ *\.\. auto(\w+):: +(\S+)$", re.MULTILINE)
BLOCK = re.compile(r"^```\{eval-rst\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = {"function", "class", "exception", "method", "property", "attribute"}


def shown(text: str) -> list[tuple[str, str]]:
    """The kind and the name of what a page has autodoc show."""
    return [(found[1], found[2]) for block in BLOCK.findall(text) for found in DIRECTIVE.finditer(block)]


def on_pages() -> list[tuple[str, str]]:
    pages = [path.read_text(encoding="utf-8") for path in sorted(REFERENCE.glob("*.md"))]
    return [one for page in pages for one in shown(page)]


def expected() -> set[str]:
    """All public names, and the members of all public classes."""
    names = {name for name, _ in methods_of(WRAPPER, JitFunction)}
    names.update(name for name, _ in methods_of(BOUND, BoundFunction))
    for name, value in public_objects():
        names.add(name)
        if isinstance(value, type):
            names.update(method for method, _ in methods_of(name, value))
            names.update(properties_of(name, value))
    return names


def resolved(name: str) -> Any:
    """What a dotted name stands for; an AttributeError where there is none."""
    found: Any = importlib.import_module("partax")
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def test_nothing_public_is_missing_and_nothing_else_is_there() -> None:
    names = {name for _, name in on_pages() if not name.endswith(".__call__")}
    if not HAS_FLAX:
        names.discard("partax.nnx.jit")
    assert len(names) > 100
    assert names == expected()


def test_nothing_is_there_twice() -> None:
    assert [name for name, count in Counter(name for _, name in on_pages()).items() if count > 1] == []


@pytest.mark.parametrize(("kind", "name"), on_pages(), ids=lambda it: it)
def test_what_is_there_is_of_its_kind(kind: str, name: str) -> None:
    assert kind in KINDS
    if name.startswith("partax.nnx") and not HAS_FLAX:
        pytest.skip("flax is not here")
    value = resolved(name)
    is_exception = isinstance(value, type) and issubclass(value, BaseException)
    assert isinstance(value, type) == (kind in ("class", "exception")) and is_exception == (kind == "exception")
    assert callable(value) == (kind not in ("property", "attribute"))
