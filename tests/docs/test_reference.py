"""Guards the promise that the reference is complete, each public name, method and property of partax on one page, once,
and that `help` answers: a docstring opens with an example that runs, and explains parameters, result and errors."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import inspect
import logging
import pathlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from shown_code import Block, run_session

import partax
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


NOT_CONSTRUCTED = {"partax.Compiled", "partax.Lowered", "partax.Traced"}  # by users
REFUSES_OPTIONS = {"partax.filter_grad", "partax.filter_value_and_grad", "partax.filter_vmap"}  # `**options`
# Equinox's older names, which are there for code that has them.
OLDER = {"partax.filter_custom_jvp.defjvp", "partax.filter_custom_jvp.defjvps", "partax.filter_custom_vjp.defvjp"}
LONGEST = 8  # lines of an example


OBJECTS = dict(public_objects())
METHODS = dict(methods_of("JitFunction", JitFunction))
for _name, _object in OBJECTS.items():
    if isinstance(_object, type):
        METHODS.update(methods_of(_name, _object))
DOCUMENTED = {**OBJECTS, **METHODS}


def entries(text: str, section: str) -> list[str]:
    """The names that a section of a docstring explains: `name: ...`, or `*names, **more: ...`, on a line of its own."""
    found = re.search(rf"^{section}:\n((?:  .*\n)+)", text + "\n", re.MULTILINE)
    names = [] if found is None else re.findall(r"^  ([\w.*]+(?:, [\w.*]+)*):", found[1], re.MULTILINE)
    return [name.lstrip("*") for listed in names for name in listed.split(", ")]


def example(text: str) -> str:
    """The session in the section that is right after the summary; empty for none."""
    found = re.match(r"\S.*\n(?:\S.*\n)?\nExample:\n((?:  .*\n)+)", text + "\n")
    return "" if found is None else inspect.cleandoc(found[1])


def parameters(name: str, value: Any) -> list[inspect.Parameter]:
    """Those that users give; none of a class whose signature cannot be told."""
    if name in NOT_CONSTRUCTED or (isinstance(value, type) and issubclass(value, BaseException)):
        return []
    if value is partax.FlatSpec or value is partax.tree.Structure:  # made by functions only
        return []
    found = [one for one in inspect.signature(value).parameters.values() if not one.name.startswith("_")]
    if name in METHODS:
        found = found[1:]
    if name in REFUSES_OPTIONS:
        found = [one for one in found if one.kind is not one.VAR_KEYWORD]
    return found


def missing(name: str, value: Any) -> list[str]:
    """What a docstring does not explain."""
    text = inspect.getdoc(value) or ""
    expected = [one.name for one in parameters(name, value)]
    explained = entries(text, "Args") or (entries(text, "Attributes") if isinstance(value, type) else [])
    wrong: list[str] = []
    if expected and explained != expected:
        wrong.append(f"Args: found {explained}, expected {expected}")
    if not isinstance(value, type):
        returned = inspect.signature(value).return_annotation
        if returned not in (None, "None") and not re.search(r"^Returns:\n  \S", text, re.MULTILINE):
            wrong.append("Returns")
    return wrong


def is_exception(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    found: Any = getattr(importlib.import_module(module), attribute, None) if module else None
    kind = found or getattr(partax, name, getattr(builtins, name, None))
    return isinstance(kind, type) and issubclass(kind, BaseException)


@pytest.fixture
def example_names(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that examples have without an import; their handlers of log records end with them."""
    logger = logging.getLogger("partax")
    monkeypatch.setattr(logger, "handlers", list(logger.handlers))
    names.update(jax=jax, jnp=jnp, partax=partax)
    return names


@pytest.mark.parametrize("name", sorted(DOCUMENTED.keys() - OLDER))
def test_a_docstring_opens_with_an_example_that_runs(name: str, example_names: dict[str, Any]) -> None:
    session = example(inspect.getdoc(DOCUMENTED[name]) or "")
    if "partax.save(" in session:
        pytest.importorskip("safetensors")
    assert session.startswith(">>> "), f"{name}: no `Example:` right after the summary"
    assert len(session.splitlines()) <= LONGEST, name
    run_session(Block(session + "\n", 1, None), example_names, name)


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_a_docstring_explains_each_parameter_the_result_and_real_exceptions(name: str) -> None:
    value = DOCUMENTED[name]
    assert inspect.getdoc(value)
    assert missing(name, value) == []
    for error in entries(inspect.getdoc(value) or "", "Raises"):
        assert is_exception(error), error


@pytest.mark.parametrize("name", sorted(name for name, value in OBJECTS.items() if isinstance(value, type)))
def test_each_attribute_of_a_public_class_is_documented(name: str) -> None:
    cls = OBJECTS[name]
    listed = entries(inspect.getdoc(cls) or "", "Attributes")
    for attribute, value in vars(cls).items():
        if not attribute.startswith("_") and attribute not in listed:
            assert inspect.getdoc(value), f"{name}.{attribute}"
