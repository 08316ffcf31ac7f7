"""Guards the promise that `help` answers: each public name's docstring opens with an example that runs and gives what
it shows, and explains each parameter, what is returned, and errors that there are."""

from __future__ import annotations

import builtins
import importlib
import inspect
import logging
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from public_names import methods_of, public_objects
from shown_code import Block, run_session

import partax
from partax._core import JitFunction

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
