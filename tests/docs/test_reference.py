"""Guards the promise that the reference is complete, each public name, method and property of partax on one page, once,
and that `help` answers: a docstring opens with an example that runs, and explains parameters, result and errors."""

import builtins
import importlib
import importlib.util
import inspect
import logging
import pathlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from shown_code import Block, run_session

import partax
from library_trees import HAS_FLAX
from partax._core import BoundFunction, JitFunction

REFERENCE = pathlib.Path(__file__).parents[2] / "docs" / "reference"
WRAPPER, BOUND = "partax.stages.Wrapper", "partax.stages.Bound"
DIRECTIVE = re.compile(r"^ *\.\. auto\w+:: +(\S+)$", re.MULTILINE)
BLOCK = re.compile(r"^```\{eval-rst\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def names_on_pages() -> list[str]:
    blocks = [block for page in sorted(REFERENCE.glob("*.md")) for block in BLOCK.findall(page.read_text("utf-8"))]
    return [name for block in blocks for name in DIRECTIVE.findall(block)]


MODULES = [
    "partax",
    "partax.debug",
    "partax.reports",
    "partax.stages",
    "partax.tree",
    *(["partax.nnx"] if HAS_FLAX else []),
]
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


OBJECTS = {name: value for name, value in public_objects() if name not in (WRAPPER, BOUND)}  # they have no docstring
CLASSES = {WRAPPER: JitFunction} | {name: value for name, value in OBJECTS.items() if isinstance(value, type)}
METHODS = {name: method for of, cls in CLASSES.items() for name, method in methods_of(of, cls)}
DOCUMENTED = OBJECTS | METHODS
NOT_CONSTRUCTED = {f"partax.stages.{name}" for name in ("Compiled", "Lowered", "Traced")}  # by users
MADE_BY_FUNCTIONS = {"partax.tree.FlatSpec"}
LONGEST = 8  # lines of an example


def test_each_public_name_is_there_once_and_no_other() -> None:
    names = Counter(name for name in names_on_pages() if not name.endswith(".__call__"))
    if not HAS_FLAX:
        del names["partax.nnx.jit"]
    properties = {name for of in OBJECTS.keys() & CLASSES.keys() for name in properties_of(of, CLASSES[of])}
    assert {*names} == DOCUMENTED.keys() | dict(methods_of(BOUND, BoundFunction)).keys() | properties
    assert {*names.values()} == {1}


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
    if name in NOT_CONSTRUCTED | MADE_BY_FUNCTIONS or (isinstance(value, type) and issubclass(value, BaseException)):
        return []
    found = [one for one in inspect.signature(value).parameters.values() if not one.name.startswith("_")]
    if name in METHODS:
        found = found[1:]
    return found


@pytest.fixture
def example_names(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that examples have without an import; their handlers of log records end with them."""
    logger = logging.getLogger("partax")
    monkeypatch.setattr(logger, "handlers", list(logger.handlers))
    names.update(jax=jax, jnp=jnp, partax=partax)
    return names


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_a_docstring_opens_with_an_example_that_runs_and_explains_the_rest(
    name: str, example_names: dict[str, Any]
) -> None:
    value = DOCUMENTED[name]
    text = inspect.getdoc(value) or ""
    session = example(text)
    if "partax.save(" in session:
        pytest.importorskip("safetensors")
    assert session.startswith(">>> "), f"{name}: no `Example:` right after the summary"
    assert len(session.splitlines()) <= LONGEST, name
    run_session(Block(session + "\n", 1, None), example_names, name)
    expected = [one.name for one in parameters(name, value)]
    explained = entries(text, "Args") or (entries(text, "Attributes") if isinstance(value, type) else [])
    assert text and (not expected or explained == expected)
    if not isinstance(value, type) and inspect.signature(value).return_annotation not in (None, "None"):
        assert re.search(r"^Returns:\n  \S", text, re.MULTILINE)
    for error in entries(text, "Raises"):
        home = next((it for it in (partax, builtins) if hasattr(it, error)), None)
        kind = pkgutil.resolve_name(error) if home is None else getattr(home, error)
        assert isinstance(kind, type) and issubclass(kind, BaseException), error


def test_each_attribute_of_a_public_class_is_documented() -> None:
    for name in CLASSES.keys() - {WRAPPER}:
        listed = entries(inspect.getdoc(CLASSES[name]) or "", "Attributes")
        for attribute, value in vars(CLASSES[name]).items():
            assert attribute.startswith("_") or attribute in listed or inspect.getdoc(value), f"{name}.{attribute}"
